int x;
x = 1;
if (argc() == 0) { x = 2; }
trace(x);
//! x
