//@ in.txt b\na\n
type file;
app (file o) sorted(file i) { sort @i stdout=@o; }
file i <"in.txt">;
file o <"sorted.txt">;
o = sorted(i);
//= sorted.txt a\nb\n
