(int[] o) sq(int n) { foreach i in [0:n] { o[i] = i * i; } }
(int o[], string s) both(int a[]) { foreach v, i in a { o[i] = v + 1; } s = strcat("n", length(a)); }
int[] x = sq(3);
int[] y; string s;
(y, s) = both(x);
trace(x[3], y[3], s);
foreach v, i in sq(2) { tracef("%i %i\n", i, v); }
trace(sq(4)[2]);
//> SwiftScript trace: 9, 10, n4
//> 0 0
//> 1 1
//> 2 4
//> SwiftScript trace: 4
