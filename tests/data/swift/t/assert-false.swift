assert(1 == 2, "one is not two");
//! Assertion failed!: one is not two
