int[] a;
foreach i in [1:3] { if (i > 5) { a[i] = i; } }
trace(length(a));
int[] b;
if (false) { b[0] = 1; }
trace(length(b));
//> SwiftScript trace: 0
//> SwiftScript trace: 0
