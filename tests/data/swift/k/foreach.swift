foreach v, i in ["x", "y"] { trace(i, v); }
//> SwiftScript trace: 0, x
//> SwiftScript trace: 1, y
