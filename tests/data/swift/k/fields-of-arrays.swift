import stdlib.v2;
type P { int x; int y; }
type Q { int b[]; P p; }
P p[]; p[0].x = 1; p[0].y = 3; p[1].x = 4; p[1].y = 5;
int q[] = p.x; int r[] = p[*].y; P s[] = p[*];
trace(q[1], r[1], s[0].x);
Q a; a.b[0] = readData("v.txt"); a.b[1] = 7; a.p.x = readData("v.txt");
trace(a.b[0], a.p.x);
P c = a.p; trace(c.x);
trace(strcat(20.0, "/", 0.5, "/", 3));
(int o) nothing(int i) { trace("nothing", i); }
int n = nothing(1);
//@ v.txt 12\n
//> SwiftScript trace: 4, 5, 1
//> SwiftScript trace: 12, 12
//> SwiftScript trace: 12
//> SwiftScript trace: 20/0.5/3
//> SwiftScript trace: nothing, 1
