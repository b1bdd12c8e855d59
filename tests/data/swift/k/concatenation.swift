string s = "a" + 1 + "b" + 2.5;
trace(s);
//> SwiftScript trace: a1b2.5
