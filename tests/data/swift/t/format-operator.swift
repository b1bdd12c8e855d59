string s = "%s-%03d" % ("a", 7);
trace(s);
//> trace: a-007
