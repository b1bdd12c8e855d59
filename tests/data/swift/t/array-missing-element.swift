int A[] = [1, 2];
trace(A[7]);
//! A
