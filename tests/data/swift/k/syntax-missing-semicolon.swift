int x = 1 trace(x);
//! ;
