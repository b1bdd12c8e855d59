// declarations of several variables, with marks in both places
int a, b = 2, c[]; a = 1; c[0] = 3; trace(a, b, c[0]);
file f<"q.txt">, g; f = write("x"); g = write("y"); trace(read(f), read(g));
string s = "x", t = s + "y"; trace(t);
int A[], B[][]; A[0] = 1; B[0][0] = 2; trace(A[0], B[0][0]);
int[] C = [1,2]; int[string] D; D["a"] = 4; float[][] E; E[0][0] = 1; trace(C[1], D["a"], E[0][0]);
int[] F, G; F[0] = 1; G[0] = 2; trace(F[0]+G[0]);
(int[] o) f(int[] i) { o = i; } trace(size(f([1,2,3])));
//> trace: 1,2,3
//> trace: xy
//> trace: 1,2
//> trace: 2,4,1.0
//> trace: 3
//> trace: 3
//> trace: x,y
