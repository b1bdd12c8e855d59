type p { int x; int[] y; };
p a; a.x = 1; a.y = [1,2];
p b = a;
p[] l; l[0] = a; l[1] = b;
int[][] m; m[0] = a.y; m[1] = [3];
int[] row = m[0];
trace(b.x, b.y[1], l[1].y[0], m[1][0], row[1], length(l), length(m));
foreach r, i in m { foreach x, j in r { tracef("%i %i %i\n", i, j, x); } }
foreach q, i in l { trace(i, q.x); }
//> SwiftScript trace: 1, 2, 1, 3, 2, 2, 2
//> 0 0 1
//> 0 1 2
//> 1 0 3
//> SwiftScript trace: 0, 1
//> SwiftScript trace: 1, 1
