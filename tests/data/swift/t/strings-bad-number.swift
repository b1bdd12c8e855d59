trace(toint("12a"));
//! 12a
