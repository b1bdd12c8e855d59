type point { int x; string s; }
point p = point(1, "a");
trace(p.x, p.s);
//> trace: 1,a
