type pair { file a; file b; };
pair p[] <simple_mapper; prefix="p", suffix=".t">;
app (file o) e(string s) { echo s stdout=@o; }
foreach i in [0:1] { p[i].a = e(strcat("a", i)); p[i].b = e(strcat("b", i)); }
app (file o) cat(pair x) { cat @x.a @x.b stdout=@o; }
file o <"o.txt"> = cat(p[1]);
//= o.txt a1\nb1\n
//= p0000_a.t a0\n
