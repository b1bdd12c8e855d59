// for: several carried variables, next values from the body, arrays, undeclared variables
for (int i = 0, int s = 0; i < 5; i = i + 1, s = s + i) { trace(i, s); }
for (int i = 0; i < 3; i = i + 1) { trace("x", i); }
int r[];
for (int i = 0, string t = ""; i < 3; i = i + 1, t = u) { u = t + i; r[i] = i; trace(u); }
for (int i = 0, boolean go = true; go; i = i + 1) { if (i == 2) { go = false; } else { go = true; } trace("go", i); }
for (float f = 0; f < 1; f = f + 0.5) { trace(f); }
for (i = 0; i < 2; i = i + 1) { trace("auto", i); }
for (int i = 10; i > 8; i = i - 1) { foreach j in [0:1] { trace("n", i, j); } }
for (int A[] = [1,2], int n = 0; n < 2; n = n + 1, A = B) { int B[]; foreach a, k in A { B[k] = a * 2; } trace(A[0], A[1]); }
//> trace: 0,0
//> trace: 1,0
//> trace: 2,1
//> trace: 3,3
//> trace: 4,6
//> trace: x,0
//> trace: x,1
//> trace: x,2
//> trace: 0
//> trace: 01
//> trace: 012
//> trace: go,0
//> trace: go,1
//> trace: go,2
//> trace: 0.0
//> trace: 0.5
//> trace: auto,0
//> trace: auto,1
//> trace: n,10,0
//> trace: n,10,1
//> trace: n,9,0
//> trace: n,9,1
//> trace: 1,2
//> trace: 2,4
