type file;
app (file count) count(file count_in) { wc "-l" stdin=@count_in stdout=@count; }
file count <"c.txt">; file i <"i.txt">;
count = count(i);
//@ i.txt a\nb\n
//= c.txt 2\n
