string s = "a" + "b" + 1 + "-" + 2.5;
trace(s);
//> trace: ab1-2.5
