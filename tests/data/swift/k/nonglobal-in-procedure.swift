int n = 3;
(int r) f() { r = n; }
trace(f());
//! n
