(string s) name(int i) { switch (i) { case 0: s = "zero"; case 1: s = "one"; default: s = strcat("n", i); } }
trace(name(0), name(1), name(5));
switch (9) { case 1: trace("no"); }
//> SwiftScript trace: zero, one, n5
