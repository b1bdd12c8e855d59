// calls with several outputs in chains
(int a, int b) f(int i) { a = i; b = i + 1; }
int x; int y; (x, y) = f(1) => trace(x + y) => { trace("z"); };
(p, q) = f(5) => trace(p, q);
//> trace: 3
//> trace: z
//> trace: 5,6
