// multi-line strings are verbatim
string s = """abc"""; printf("[%s]", s);
string t = """
x
"""; printf("[%s]", t);
string u = ----
a
----; printf("[%s]", u);
string c = """ "q" ""q"" """; printf("[%s]", c);
string d = ----
-- a --
--- b ---
----; printf("[%s]", d);
string e = """ \t \\ """; printf("[%s]", e);
//> [abc]
//> [x
//> ]
//> [a
//> ]
//> [ "q" ""q"" ]
//> [-- a --
//> --- b ---
//> ]
//> [ \t \\ ]
