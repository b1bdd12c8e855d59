int A[];
foreach i in [0:9] { A[i] = i * i; }
trace(sum_integer(A));
//> trace: 285
