int A[][];
foreach i in [0:2] { foreach j in [0:2] { A[i][j] = i; } }
wait deep (A) { trace("all"); }
//> trace: all
