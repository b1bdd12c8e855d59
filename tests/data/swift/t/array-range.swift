int A[] = [1:5];
int B[] = [0:10:5];
trace(size(A), sum_integer(A), B[2]);
//> trace: 5,15,10
