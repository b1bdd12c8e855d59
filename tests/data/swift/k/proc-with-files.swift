type file;
app (file o) sort_(file i) { sort @i stdout=@o; }
app (file o) uniq_(file i) { uniq "-c" @i stdout=@o; }
(file o) hist(file i) { file t <"sorted.tmp">; t = sort_(i); o = uniq_(t); }
file i <"i.txt">; file h <"h.txt">;
h = hist(i);
//@ i.txt b\na\nb\n
//= sorted.tmp a\nb\nb\n
//= h.txt       1 a\n      2 b\n
