int a[][];
a[0][0] = 1;
a[0][1] = 2;
a[1][0] = 3;
trace(a[0][1], a[1][0]);
//> SwiftScript trace: 2, 3
