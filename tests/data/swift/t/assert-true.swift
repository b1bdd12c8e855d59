import assert;
assert(1 == 1, "fine");
assertEqual(2, 1 + 1, "two");
assertEqual("a", "a", "strings");
assertLT(1, 2, "less");
assertLTE(2.0, 2.0, "less or equal");
