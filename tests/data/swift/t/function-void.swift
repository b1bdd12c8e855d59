(void v) f(int i) { trace(i) => v = makeVoid(); }
f(7);
//> trace: 7
