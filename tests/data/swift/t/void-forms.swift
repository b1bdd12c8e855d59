// signals in variables, arrays, functions
void v = propagate(); wait (v) { trace("p"); } void w = makeVoid(); void u; u = w; wait (u) { trace("u"); }
void A[]; foreach i in [0:2] { A[i] = trace(i); } wait deep (A) { trace("all"); } wait (A) { trace("all2"); }
(void o) seq(int n) { if (n == 0) { o = makeVoid(); } else { seq(n - 1) => trace("n", n) => o = propagate(); } } seq(3);
(void o) seq2(int n) { void z; z = trace(n); o = z; } seq2(1);
//> trace: p
//> trace: u
//> trace: n,1
//> trace: n,2
//> trace: n,3
//> trace: 1
//> trace: 0
//> trace: 1
//> trace: 2
//> trace: all
//> trace: all2
