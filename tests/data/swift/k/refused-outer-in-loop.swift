int x;
foreach i in [1:3] { x = i; }
trace(x);
//! x
