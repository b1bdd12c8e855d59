int x;
trace(x);
//! x
