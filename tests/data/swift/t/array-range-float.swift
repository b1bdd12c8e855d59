float A[] = [0.0:1.0:0.25];
trace(size(A), A[4]);
//> trace: 5,1.0
