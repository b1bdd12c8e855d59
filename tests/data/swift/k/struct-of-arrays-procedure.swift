type table { int[] xs; string[] ns; }
(table t) mk(int n) { foreach i in [0:n-1] { t.xs[i] = i * i; t.ns[i] = strcat("n", i); } }
table t = mk(3);
trace(t.xs[2], t.ns[1], length(t.xs));
foreach x, i in t.xs { tracef("%s=%i\n", t.ns[i], x); }
//> SwiftScript trace: 4, n1, 3
//> n0=0
//> n1=1
//> n2=4
