int A[];
A[0] = 1;
A[1] = A[0] + 1;
A[2] = A[1] + 1;
trace(A[2]);
//> trace: 3
