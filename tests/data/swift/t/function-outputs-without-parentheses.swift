(int a, int b) two(int x) { a = x; b = -x; }
p, q = two(3);
trace(p, q);
//> trace: 3,-3
