int A[];
foreach i in [0:4] { A[i] = i; }
wait (A) { trace("closed"); }
//> trace: closed
