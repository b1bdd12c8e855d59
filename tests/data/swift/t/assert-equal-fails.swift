assertEqual(1, 2, "numbers");
//! 1 != 2: numbers
