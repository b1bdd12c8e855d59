// a recursive function with an array
(int o[]) f(int n) { if (n > 0) { int r[] = f(n - 1); foreach v, i in r { o[i] = v; } o[n] = n; } else { o[0] = 0; } } int A[] = f(4); trace(size(A), sum(A));
//> trace: 5,10
