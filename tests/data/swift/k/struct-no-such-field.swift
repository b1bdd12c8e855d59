type point { int x; }
point p;
p.x = 1;
trace(p.z);
//! z
