int A[];
A[0] = 1;
A[0] = 2;
trace(A[0]);
//! A[0]
