//@ in.txt b\na\n
app (file o) sorted(file i) { "sort" @stdin=i @stdout=o; }
file i = input("in.txt");
file o<"sorted.txt"> = sorted(i);
trace(filename(o));
//> trace: sorted.txt
//= sorted.txt a\nb\n
