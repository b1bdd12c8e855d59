string s = sprintf("%s has %i", "x", 3);
trace(s);
//> SwiftScript trace: x has 3
