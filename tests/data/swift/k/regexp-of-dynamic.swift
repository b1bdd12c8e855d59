type file;
app (file[] outs) split(file i) { sh "-c" "split -l 1 -d -a 1 $0 part." @i; }
app (file o) up(file i) { tr "a-z" "A-Z" stdin=@i stdout=@o; }
file i <"i.txt">;
file[] outs <filesys_mapper; pattern="part.*">;
outs = split(i);
file[] ups <structured_regexp_mapper; source=outs, match="part\\.(.*)", transform="up.\\1">;
foreach f, k in outs { ups[k] = up(f); }
//@ i.txt a\nb\n
//= up.0 A\n
//= up.1 B\n
