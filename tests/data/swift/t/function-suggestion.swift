trace(sqtr(4.0));
//! sqrt
