//@ a.txt 1\n
//@ b.txt 2\n
type file;
app (file o) cat(file fs[]) { cat @filenames(fs) stdout=@o; }
file fs[] <fixed_array_mapper; files="a.txt, b.txt">;
file o <"all.txt"> = cat(fs);
//= all.txt 1\n2\n
