app (file o) start(int i) { "echo" i @stdout=o; }
app (file o) append(file i) { "sh" "-c" "cat $0; echo more" i @stdout=o; }
file f<"end.txt"> = append(append(start(1)));
//= end.txt 1\nmore\nmore\n
