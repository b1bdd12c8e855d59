//$ one
arguments(string a, int b : "how many");
trace(a, b);
//! argument 2 is missing
