// arrays: nested, sparse, of literals, ranges, functions, with keys
int A[][][]; A[0][1][2] = 5; A[0][1][3] = 6; A[4][0] = [7, 8]; 
trace(size(A), size(A[0][1]), A[4][0][1]);
int M[][] = [[1,2],[3,4]]; trace(M[1][0], size(M[0]));
foreach row, i in M { foreach v, j in row { trace("m", i, j, v); } }
int B[] = M[1]; trace(B[1]);
int C[]; C = B; trace(size(C));
int S[]; S[1000000] = 1; S[-5] = 2; trace(size(S), S[-5]);
foreach v, k in S { trace("s", k, v); }
int E[]; trace(size(E)); foreach v in E { trace("no"); }
int N[][]; trace(size(N));
string K[string]; K["b"] = "2"; K["a"] = "1"; foreach v, k in K { trace(k, v); }
int L[string][int]; L["x"][3] = 4; trace(L["x"][3]);
trace(size([]), [1,2,3][2], size([1:0]), size([0:10:3]), size([10:0:-2]), [5:7][1]);
int Q[] = [A[0][1][2], 1 + 1, fib(2)]; trace(Q[0], Q[2]);
(int o) fib(int n) { if (n <= 1) { o = n; } else { o = fib(n-1) + fib(n-2); } }
(int o[]) build(int n) { foreach i in [0:n-1] { o[i] = i * i; } }
trace(sum(build(5)), size(build(3)), build(4)[3]);
//> trace: 3,2
//> trace: 4
//> trace: 4
//> trace: 0,3,0,4,6,6
//> trace: 5,1
//> trace: 2,2,8
//> trace: 2
//> trace: 2,2
//> trace: 0
//> trace: 0
//> trace: m,0,0,1
//> trace: m,0,1,2
//> trace: m,1,0,3
//> trace: m,1,1,4
//> trace: s,1000000,1
//> trace: s,-5,2
//> trace: b,2
//> trace: a,1
//> trace: 30,3,9
