(int a, string b) two(int x) { a = x + 1; b = strcat("s", x); }
int p; string q;
(p, q) = two(1);
trace(p, q);
//> SwiftScript trace: 2, s1
