(int o) f(int x) { o = x; }
trace(f("a"));
//! f
