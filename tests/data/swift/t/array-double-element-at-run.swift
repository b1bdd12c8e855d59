int A[];
foreach i in [0:1] { A[i %/ 2] = i; }
trace(size(A));
//! A
