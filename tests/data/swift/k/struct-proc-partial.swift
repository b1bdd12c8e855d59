type p { int x; string y; }
(p o) mk(int i) { o.x = i; o.y = strcat("n", i); }
(int r) getx(p i) { r = i.x; }
p[] l;
foreach i in [0:2] { l[i] = mk(i); }
foreach q in l { trace(getx(q), q.y); }
//> SwiftScript trace: 0, n0
//> SwiftScript trace: 1, n1
//> SwiftScript trace: 2, n2
