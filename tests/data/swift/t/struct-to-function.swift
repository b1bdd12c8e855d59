type point { int x; int y; }
(int o) norm(point p) { o = p.x * p.x + p.y * p.y; }
(point p) make(int x, int y) { p.x = x; p.y = y; }
trace(norm(make(3, 4)));
//> trace: 25
