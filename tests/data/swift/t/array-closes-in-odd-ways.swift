// containers close when nothing can write them any more
int A[]; int B[];
if (size(B) == 2) { A[0] = 1; } else { A[1] = 2; }
B[0] = 1; foreach i in [1:1] { B[i] = i; }
trace("A", size(A));
int C[]; foreach a, i in A { C[i] = a; switch (a) { case 2: C[100] = 1; } }
trace("C", size(C));
fill(); fill() { trace("fill"); }
int D[]; D[0] = 0; wait (D[0]) { D[1] = 1; } trace("D", size(D));
int E[]; E[size(D)] = 4; trace("E", size(E), E[2]);
//> trace: fill
//> trace: D,2
//> trace: E,1,4
//> trace: A,1
//> trace: C,1
