int x;
if (argc() > 0) { x = 1; }
trace(x);
//! x
