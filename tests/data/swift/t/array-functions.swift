// arrays through functions
(int o[]) inc(int a[]) { foreach v, i in a { o[i] = v + 1; } }
int A[] = [1,2,3]; int B[] = inc(inc(A)); foreach b, i in B { trace(i, b); }
int C[][]; foreach i in [0:2] { C[i] = inc([i, i]); } trace(C[2][1], size(C));
(int o[][]) mat(int n) { foreach i in [0:n-1] { foreach j in [0:n-1] { o[i][j] = i * j; } } } int D[][] = mat(4); trace(D[3][3], size(D), size(D[2]));
int E[][]; E[0] = [1]; E[1][0] = 2; E[1][5] = 3; trace(size(E[1])); foreach e in E { trace(size(e)); }
int[] F[]; F[0] = [9]; trace(F[0][0]);
//> trace: 9
//> trace: 2
//> trace: 3,3
//> trace: 1
//> trace: 2
//> trace: 0,3
//> trace: 1,4
//> trace: 2,5
//> trace: 9,4,4
