int x = 1.5;
trace(x);
//! int
