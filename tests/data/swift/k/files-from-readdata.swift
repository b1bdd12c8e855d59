app (file o) mk() { sh "-c" "echo x.t; echo y.t" stdout=@o; }
string names[] = readData(mk());
file fs[] <array_mapper; files=names>;
app (file o) cat(file[] i) { cat @filenames(i) stdout=@o; }
file o <"o.txt"> = cat(fs);
//@ x.t X
//@ y.t Y
//= o.txt XY
