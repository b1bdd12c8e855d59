type file;
app (file o) e(int s) { echo s stdout=@o; }
(file[] r) mk(int n) { foreach i in [0:n-1] { r[i] = e(i); } }
file[] out <concurrent_mapper; prefix="c", suffix=".t">;
out = mk(2);
app (file o) cat(file[] i) { cat @filenames(i) stdout=@o; }
file o <"o.txt"> = cat(out);
//= o.txt 0\n1\n
