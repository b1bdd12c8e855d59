(int o) f(int x) { o = x; }
trace(f(1, 2));
//! f
