// Two functions that differ in what a call may leave out.
(int r) f(int x, string a = "one") { r = x; }
(int r) f(int x, boolean b = false) { r = x; }
trace(f(1, "two"));
//! a call of f without its optional arguments may mean two functions
