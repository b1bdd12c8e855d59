//@ in.txt 1\n2\n
type file;
app (file o) count(file i) { wc "-l" stdin=@i stdout=@o; }
file i <"in.txt">;
file o <"count.txt"> = count(i);
//= count.txt 2\n
