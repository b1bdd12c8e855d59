(string s) name(int i) { s = "n" + i; }
s = name(3);
trace(s);
//> trace: n3
