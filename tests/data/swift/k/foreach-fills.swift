int a[];
foreach i in [0:4] { a[i] = i * 2; }
trace(length(a), a[4]);
//> SwiftScript trace: 5, 8
