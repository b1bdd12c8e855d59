// elements from branches, loops and switch
int A[]; foreach i in [0:3] { if (i %% 2 == 0) { A[i] = i; } else { foreach j in [0:i] { A[i * 10 + j] = j; } } } trace(size(A), sum(A));
int B[]; foreach i in [0:3] { switch (i) { case 0: B[i] = 0; case 1: B[i] = 10; default: B[i] = i * 100; } } trace(sum(B));
int C[]; wait (A) { foreach a, k in A { C[k] = a; } } trace(size(C));
//> trace: 8,9
//> trace: 8
//> trace: 510
