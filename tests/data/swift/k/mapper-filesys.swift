//@ b.in 2\n
//@ a.in 1\n
type file;
app (file o) cat(file fs[]) { cat @filenames(fs) stdout=@o; }
file fs[] <filesys_mapper; pattern="*.in">;
file o <"all.txt"> = cat(fs);
trace(length(fs));
//> SwiftScript trace: 2
//= all.txt 1\n2\n
