int x = "text";
trace(x);
//! int
