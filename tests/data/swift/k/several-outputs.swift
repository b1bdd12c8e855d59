(int q, int r) divide(int a, int b) { q = a %/ b; r = a %% b; }
int q, r;
(q, r) = divide(7, 2);
int a[];
(a[0], a[1]) = divide(9, 4);
type s { int x; int y; } s t;
(t.x, t.y) = divide(5, 3);
(int u, int v) = divide(11, 3);
trace(q, r, a[0], a[1], t.x, t.y, u, v);
//> SwiftScript trace: 3, 1, 2, 1, 1, 2, 3, 2
