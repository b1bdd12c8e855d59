() f(int i) { trace("in", i); }
f(1);
//> trace: in,1
