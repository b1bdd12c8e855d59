type file;
file[] ins <fixed_array_mapper; files="a.txt, b.txt c.txt">;
app (file o) cat(file[] fs) { cat @filenames(fs) stdout=@o; }
app (file o) names(file fs[]) { echo filenames(fs) @fs @filename(fs) stdout=filename(o); }
file o <"o.txt">;
o = cat(ins);
file n <"n.txt"> = names(ins);
//@ a.txt A\n
//@ b.txt B\n
//@ c.txt C\n
//= o.txt A\nB\nC\n
//= n.txt a.txt b.txt c.txt a.txt b.txt c.txt a.txt b.txt c.txt\n
