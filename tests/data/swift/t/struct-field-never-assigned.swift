type point { int x; int y; }
point p;
p.x = 1;
trace(p.y);
//! y
