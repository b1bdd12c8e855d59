type file;
app (file a, file b) both() { sh "-c" "echo 1 > $0; echo 2 > $1" @a @b; }
file a <"a.txt">;
file b <"b.txt">;
(a, b) = both();
//= a.txt 1\n
//= b.txt 2\n
