(int r) add(int a, int b) { r = a + b; }
trace(add(1, 2));
//> SwiftScript trace: 3
