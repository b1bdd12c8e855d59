int x;
if (1 < 2) { x = 1; } else { x = 2; }
trace(x);
//> SwiftScript trace: 1
