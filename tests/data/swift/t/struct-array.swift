type point { int x; int y; }
point P[];
foreach i in [0:2] { P[i].x = i; P[i].y = i * i; }
trace(P[2].y, size(P));
//> trace: 4,3
