int A[];
A[10] = 1;
A[100] = 2;
trace(size(A), A[10] + A[100]);
//> trace: 2,3
