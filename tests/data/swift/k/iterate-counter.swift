int a[];
a[0] = 1;
iterate i {
  a[i+1] = a[i] * 2;
  trace(i, a[i]);
} until (a[i] > 7);
//> SwiftScript trace: 0, 1
//> SwiftScript trace: 1, 2
//> SwiftScript trace: 2, 4
