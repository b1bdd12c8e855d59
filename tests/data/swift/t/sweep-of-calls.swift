(int o) f(int x) { o = x %% 7; }
int A[];
foreach i in [0:999] { A[i] = f(i); }
trace(sum_integer(A));
//> trace: 2997
