int[] a = [1, 2, 3];
int b[];
b[0] = a[0] + a[2];
trace(b[0], length(a));
//> SwiftScript trace: 4, 3
