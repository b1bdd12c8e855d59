string A[string];
A["x"] = "1";
A["y"] = "2";
foreach v, k in A { trace(k, v); }
//> trace: x,1
//> trace: y,2
