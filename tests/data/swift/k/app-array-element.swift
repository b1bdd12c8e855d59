type file;
app (file o) echo(string s) { echo s stdout=@o; }
app (file o) cat(file i[]) { cat @i[0] @i[1] stdout=@o; }
file f[] <simple_mapper; prefix="p", suffix=".txt">;
foreach i in [0:1] { f[i] = echo(strcat("n", i)); }
file o <"o.txt"> = cat(f);
//= o.txt n0\nn1\n
//= p0000.txt n0\n
//= p0001.txt n1\n
