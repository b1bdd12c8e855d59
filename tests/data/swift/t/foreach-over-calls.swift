// loops over results and literals
foreach v, i in f(3) { trace(i, v); } foreach s in split("a b", " ") { trace(s); } foreach v in [f(2)[0], 7] { trace("l", v); } (int o[]) f(int n) { foreach i in [0:n-1] { o[i] = i * 10; } }
//> trace: a
//> trace: b
//> trace: l,7
//> trace: 0,0
//> trace: 1,10
//> trace: 2,20
//> trace: l,0
