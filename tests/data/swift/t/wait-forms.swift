// wait for several variables, for expressions, deep, and as a link of a chain
int A[]; foreach i in [0:3] { A[i] = i; }
wait (A) { trace("closed"); }
wait deep (A) { trace("deep"); }
int B[][]; foreach i in [0:1] { foreach j in [0:1] { B[i][j] = i+j; } }
wait deep (B) { trace("B", size(B)); }
int x = 3; wait (x, A) { int y = x; trace(y); z = y + 1; trace(z); }
wait (A) { int q = 1; } => trace("after wait");
//> trace: after wait
//> trace: closed
//> trace: deep
//> trace: 3
//> trace: 4
//> trace: B,2
