(int r) f(int a, int b = 10) { r = a * 100 + b; }
trace(f(1), f(1, 2), f(1, b = 3));
//> SwiftScript trace: 110, 102, 103
