trace(1 %/ 0);
//! zero
