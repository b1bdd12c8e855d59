int x; int y;
y = x + 1;
trace(y);
x = 1;
//> SwiftScript trace: 2
