int A[][];
A[0][0] = 1;
A[0][1] = 2;
A[1][0] = 3;
trace(size(A), size(A[0]), A[1][0]);
//> trace: 2,2,3
