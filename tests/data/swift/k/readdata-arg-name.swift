string[] files = readData(arg("list", "list.txt"));
file f[] <array_mapper; files=files>;
app (file o) cat(file i) { cat @i stdout=@o; }
foreach x, i in f { file o <single_file_mapper; file=@strcat(@x, ".out")>; o = cat(x); }
//@ list.txt a.t\nb.t\n
//@ a.t A
//@ b.t B
//= a.t.out A
//= b.t.out B
