if (1) { trace("x"); }
//! boolean
