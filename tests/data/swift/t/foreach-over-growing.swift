int A[]; int B[];
A[0] = 1;
foreach v, i in A { B[i] = v * 2; }
A[1] = B[0] + 10;
A[2] = B[1] + 10;
trace(sum_integer(B));
//> trace: 94
