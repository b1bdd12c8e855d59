type point { int x; int y; }
point ps[];
foreach i in [0:2] { ps[i].x = i; ps[i].y = i * i; }
trace(ps[2].y);
//> SwiftScript trace: 4
