// an array that is still filled, as an item of a literal, of a map, of a bag, as an app's argument
import sys;
int A[]; int B[][]; int C[][];
B = [A, [9]];
C = {7: A};
foreach i in [0:3] { if (slow(i) == 2) { A[i] = i; } else { A[i] = 0; } }
(int o) slow(int i) { sleep(0.05) => o = i; }
app (file o) words(int a[][]) { "echo" a @stdout=o; }
trace(size(B), size(B[0]), size(C[7]));
bag<int[]> b; b += A;
foreach x in b { trace("bag", size(x)); }
file f<"f"> = words([A, [8]]);
//> trace: 2,4,4
//> trace: bag,4
//= f 0 0 2 0 8\n
