// lines, parts of names, facts
file f<"out.txt"> = write("a\nb # c\n\n  d\n"); 
foreach l, i in file_lines(f) { trace(i, l); }
foreach l in split(read(f), "\n") { trace("[" + l + "]"); }
trace(file_exists("in.txt"), file_exists("nope"), file_size(f), file_type("in.txt"));
trace(dirname_string("/a/b.c.d"), basename_string("/a/b.c.d"), rootname_string("/a/b.c.d"), extension_string("/a/b.c.d"));
trace(basename("/a/b.c"));
//@ in.txt content\n
//> trace: /a,b.c.d,/a/b.c,.d
//> trace: b.c
//> trace: 0,a
//> trace: 1,b
//> trace: 2,d
//> trace: [a]
//> trace: [b # c]
//> trace: []
//> trace: [  d]
//> trace: []
//> trace: 1,0,13,file
