// escapes mean in strings of several lines what they mean in others
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
string e = """ \x41 \\ """; printf("[%s]", e);
//> [abc]
//> [x
//> ]
//> [a
//> ]
//> [ "q" ""q"" ]
//> [-- a --
//> --- b ---
//> ]
//> [ A \ ]
