int[auto] a;
foreach i in [1:4] { a << i * i; }
trace(length(a));
//> SwiftScript trace: 4
