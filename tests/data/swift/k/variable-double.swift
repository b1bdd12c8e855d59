int x = 1;
x = 2;
trace(x);
//! x
