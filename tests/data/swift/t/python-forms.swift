// Python code in several lines
import python;
string s = python("x = 1 + 2", "repr(x)"); printf("%s", s);
printf(python_persist("import math", "str(math.pi)"));
printf(python("", "2+2"));
string code =
"""
import sys
def f(i):
    return str(i * 2)
""";
printf(python(code, "f(21)"));
printf(python_persist(code, "f(%i)" % 3));
//> 3
//> 3.141592653589793
//> 4
//> 42
//> 6
