global file common <"common.txt">;
app (file o) cat(file i, file c) { cat @i @c stdout=@o; }
(file o) work(file i) { o = cat(i, common); }
file i <"i.txt">; file o <"o.txt"> = work(i);
//@ common.txt C
//@ i.txt I
//= o.txt IC
