int a[]; int b[];
b[0] = 2; a[b[0]] = 5; a[f(1)] = 6;
(int r) f(int i) { r = i + 10; }
trace(a[2], a[11], a[b[0]]);
//> SwiftScript trace: 5, 6, 5
