// a for loop whose rounds come one after the other
for (void v = makeVoid(), int i = 0; i < 3; v = w, i = i+1) { void w; wait (v) { w = trace(i); } }
//> trace: 0
//> trace: 1
//> trace: 2
