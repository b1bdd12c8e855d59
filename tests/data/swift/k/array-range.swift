int a[] = [1:10:3];
trace(length(a), a[3]);
//> SwiftScript trace: 4, 10
