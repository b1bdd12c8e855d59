int A[][] = [[1, 2], [3, 4]];
int C[][];
foreach i in [0:1] {
  foreach j in [0:1] {
    int P[];
    foreach k in [0:1] { P[k] = A[i][k] * A[k][j]; }
    C[i][j] = sum_integer(P);
  }
}
trace(C[0][0], C[0][1], C[1][0], C[1][1]);
//> trace: 7,10,15,22
