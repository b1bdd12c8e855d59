(int a, int b) two(int x) { a = 1; b = x; }
int a; int b;
int late = a + 1;
(a, b) = two(late);
trace(b);
//> trace: 2
