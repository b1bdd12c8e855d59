type S { int n; int A[]; }
S s;
s.n = 2;
foreach i in [0:2] { s.A[i] = i; }
trace(s.n, size(s.A));
//> trace: 2,3
