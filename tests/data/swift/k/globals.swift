global int n = 4;
(int r) f() { r = n * 2; }
trace(f());
//> SwiftScript trace: 8
