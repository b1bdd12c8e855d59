int A[];
int n = 3;
A[0] = 1;
if (n > 2) { A[1] = 2; } else { A[2] = 3; }
trace(size(A), contains(A, 1), contains(A, 2));
//> trace: 2,1,0
