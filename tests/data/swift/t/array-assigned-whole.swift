int A[];
A = [4, 5];
trace(A[1]);
//> trace: 5
