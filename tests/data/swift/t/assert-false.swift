assert(1 == 2, "one is not two");
//! assertion failed: one is not two
