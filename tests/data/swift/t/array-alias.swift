// an array that becomes another one
int A[]; int B[] = A; A[0] = 1; trace(B[0], size(B));
//> trace: 1,1
