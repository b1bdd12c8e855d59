(int r[]) squares(int n) { foreach i in [0:n - 1] { r[i] = i * i; } }
int s[] = squares(4);
trace(s[3], length(s));
//> SwiftScript trace: 9, 4
