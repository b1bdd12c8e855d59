float[string] m;
m["one"] = 1.0;
m["two"] = 2.0;
foreach v, k in m { trace(k, v); }
//> SwiftScript trace: one, 1.0
//> SwiftScript trace: two, 2.0
