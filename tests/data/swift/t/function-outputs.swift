(int a, string b) two(int x) { a = x + 1; b = "b" + x; }
int p; string q;
(p, q) = two(1);
trace(p, q);
//> trace: 2,b1
