(int A[]) fill(int n) { foreach i in [1:n] { A[i] = i; } }
int B[] = fill(4);
trace(size(B), B[4]);
//> trace: 4,4
