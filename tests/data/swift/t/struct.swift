type point { int x; int y; }
point p;
p.x = 1;
p.y = p.x + 1;
trace(p.x, p.y);
//> trace: 1,2
