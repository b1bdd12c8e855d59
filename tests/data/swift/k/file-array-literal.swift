file a <"a">; file b <"b">;
app (file o) cat(file x[]) { cat @filenames(x) stdout=@o; }
file o <"o.txt"> = cat([a, b]);
//@ a A
//@ b B
//= o.txt AB
