type file;
app (file o, file e) cat(file i, string extra, int n, float x, boolean b) {
  sh "-c" "cat; echo $0 $@; echo oops >&2" extra n x b -5 "two words" stdin=@i stdout=@o stderr=@e;
}
file i <"in.txt">;
file o <"o.txt">; file e <"e.txt">;
(o, e) = cat(i, "x y", 3, 1.5, true);
//@ in.txt abc\n
//= o.txt abc\nx y 3 1.5 true -5 two words\n
//= e.txt oops\n
