type file;
app (file o) start() { echo "1" stdout=@o; }
app (file o) more(file i) { sh "-c" "cat $0; echo 2" @i stdout=@o; }
file a = start();
file b <"b.txt"> = more(a);
//= b.txt 1\n2\n
