global int x;
f() { x = 1; }
f();
trace(x);
//! functions can only read
