import python;
string s = python("x = 6 * 7", "repr(x)");
trace(s);
trace(python_persist("import math", "str(math.floor(2.5))"));
//> trace: 42
//> trace: 2
