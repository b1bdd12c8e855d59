string s = R("x <- 1", "x");
trace(s);
//! R
