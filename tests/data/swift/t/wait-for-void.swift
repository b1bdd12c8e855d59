(void v) f() { v = makeVoid(); }
void done = f();
wait (done) { trace("done"); }
//> trace: done
