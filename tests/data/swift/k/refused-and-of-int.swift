// numbers are no truth values
trace(1 && true);
//! boolean
