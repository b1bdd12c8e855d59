global const int N = 4;
(int o) f() { o = N * 2; }
trace(f());
//> trace: 8
