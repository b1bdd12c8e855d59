foreach v, i in ["a", "b"] { trace(i, v); }
//> trace: 0,a
//> trace: 1,b
