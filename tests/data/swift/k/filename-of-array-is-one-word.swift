type file;
app (file o) count(file fs[]) { sh "-c" "echo $#; echo $1" "sh" @filename(fs) @fs @filenames(fs) stdout=@o; }
file fs[] <fixed_array_mapper; files="a.txt, b.txt">;
file o <"o.txt"> = count(fs);
//@ a.txt 1
//@ b.txt 2
//= o.txt 4\na.txt b.txt\n
