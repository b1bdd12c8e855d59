//@ a.in 1\n
//@ b.in 2\n
type file;
app (file o) copy(file i) { cat @i stdout=@o; }
file is[] <filesys_mapper; suffix=".in">;
file os[] <structured_regexp_mapper; source=is, match="(.*)in", transform="\\1out">;
foreach f, i in is { os[i] = copy(f); }
//= a.out 1\n
//= b.out 2\n
