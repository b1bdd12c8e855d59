(int r) f(int a, int b=2, int c=3) { r = a * 100 + b * 10 + c; }
trace(f(1));
trace(f(1, c=9));
trace(f(a=4, b=5));
trace(f(1, 7));
//> SwiftScript trace: 123
//> SwiftScript trace: 129
//> SwiftScript trace: 453
//> SwiftScript trace: 173
