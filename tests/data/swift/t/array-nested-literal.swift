int A[][] = [[1, 2], [3]];
trace(A[0][1], size(A[1]));
//> trace: 2,1
