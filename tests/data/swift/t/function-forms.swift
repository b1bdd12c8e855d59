// calls before definitions, several outputs into elements, fields and undeclared variables
trace(fib(15), ack(2, 2), even(10), odd(7));
(int o) fib(int n) { if (n <= 1) { o = n; } else { o = fib(n-1) + fib(n-2); } }
(int o) ack(int m, int n) { if (m == 0) { o = n + 1; } else if (n == 0) { o = ack(m-1, 1); } else { o = ack(m-1, ack(m, n-1)); } }
(boolean o) even(int n) { if (n == 0) { o = true; } else { o = odd(n-1); } }
(boolean o) odd(int n) { if (n == 0) { o = false; } else { o = even(n-1); } }
(int a, float b, string c[]) multi(int n) { a = n; b = n; c[0] = "x" + n; c[1] = "y"; }
int a; float b; string c[]; (a, b, c) = multi(4); trace(a, b, c[0], size(c));
(int p, float q, string r[]) = multi(5); trace(p,q,r[0]);
int A[]; string S[][]; (A[0], b2, S[1]) = multi(6); float b2; trace(A[0], b2, S[1][0]);
int dummy; float d2; string d3[];
dummy, d2, d3 = multi(7); trace(dummy, d2, d3[1]);
f0(); f0() => trace("done f0");
f0 () { trace("f0"); }
(void v) f1() { v = makeVoid(); }
fib(3);
type st { int x; int y[]; }
st sa; int m3[]; float fl; (sa.x, fl, sc) = multi(8); string sc[]; trace(sa.x, sc[0]);
st sb[]; (sb[0].x, fl2, sd) = multi(9); float fl2; string sd[]; trace(sb[0].x);
//> trace: done f0
//> trace: 610,7,1,1
//> trace: 4,4.0,x4,2
//> trace: 5,5.0,x5
//> trace: 6,6.0,x6
//> trace: 7,7.0,y
//> trace: f0
//> trace: f0
//> trace: 8,x8
//> trace: 9
