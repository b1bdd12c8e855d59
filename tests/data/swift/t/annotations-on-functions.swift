@pure (int o) f(int x) { o = x + 1; }
@suppress=unused_output
(int o) g(int x) { o = x; }
trace(f(1), g(1));
//> trace: 2,1
