string s = sprintf("%s has %i of %.2f", "x", 3, 1.5);
trace(s);
//> trace: x has 3 of 1.50
