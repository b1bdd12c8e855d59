// overloads, keyword arguments, varargs, type parameters, promotion
(int o) f(int i) { o = i; }
(int o) f(int i, int j) { o = i + j; }
(int o) f(string s) { o = strlen(s); }
(float o) f(float x) { o = x; }
trace(f(1), f(1,2), f("abc"), f(1.5));
(int o) g(int x, int y=10, string z="d") { o = x + y + strlen(z); }
trace(g(1), g(1, 2), g(1, z="abcd"), g(1, y=3), g(1));
(int o) v(int first, int... rest) { o = first + size(rest); }
trace(v(1), v(1, 2, 3), v(1, 2));
<T> (T o) id(T i) { o = i; }
trace(id(1), id("s"), id(2.5));
<T> (T o) firstof(T A[]) { o = A[0]; }
trace(firstof([3,4]), firstof(["a"]));
(float o) fl(float x) { o = x; }
trace(fl(1), fl(fib(3)));
(int o) fib(int n) { if (n <= 1) { o = n; } else { o = fib(n-1) + fib(n-2); } }
(float o) ret() { o = 3; } trace(ret());
float F[]; F[0] = 1; F[1] = fib(4); trace(F[0], F[1]);
float t = ternary(true, 1, 2.5); trace(t);
float G[] = [1, 2, 3]; trace(G[0]); float H = 7; trace(H); trace([1, 2.5][0]);
float I[string] = {"a": 1}; trace(I["a"]);
//> trace: 1.0
//> trace: 1.0
//> trace: 7.0
//> trace: 1.0
//> trace: 1.0
//> trace: 1,3,3,1.5
//> trace: 12,4,15,5,12
//> trace: 1,3,2
//> trace: 1,s,2.5
//> trace: 3,a
//> trace: 1.0,2.0
//> trace: 3.0
//> trace: 1.0,3.0
