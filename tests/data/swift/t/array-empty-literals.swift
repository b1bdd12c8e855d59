// empty arrays of all kinds
int A[] = []; trace(size(A)); string B[string] = {}; trace(size(B)); float C[][] = [[], [1.0]]; trace(size(C[0]), size(C)); f([]); f(int a[]) { trace("f", size(a)); }
//> trace: f,0
//> trace: 0
//> trace: 0
//> trace: 0,2
