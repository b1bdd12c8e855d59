// variables of a loop that are declared outside get the last value
int i; int A[]; float s = 0.5;
for (i = 0; i < 3; i = i + 1) { A[i] = i * i; }
trace(i, size(A));
for (; s > 1.0;) { trace("never"); }
f(2); f(int n) { int k; for (k = n; k < 4; k = k + 1) { trace("in", k); } trace("end", k); }
//> trace: 3,3
//> trace: in,2
//> trace: in,3
//> trace: end,4
