int A[] = [1, 2, 3];
trace(A[0], A[2], size(A));
//> trace: 1,3,3
