type p { int x; }
p[auto] l;
foreach i in [1:3] { p q; q.x = i; l << q; }
int n[auto]; n << 1; n << 2;
trace(length(l), length(n));
//> SwiftScript trace: 3, 2
