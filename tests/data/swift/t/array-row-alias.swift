// a row of an array as a variable
int A[][]; int B[] = A[0]; A[0][1] = 5; trace(B[1], size(B));
//> trace: 5,1
