int a[];
a[0] = 1;
iterate i { a[i + 1] = a[i] * 2; } until (i == 5);
trace(a[5]);
//> SwiftScript trace: 32
