type file;
app (file o) e(string s) { echo s stdout=@o; }
file n <"n.txt"> = e("hello");
string s = readData(n);
file o <single_file_mapper; file=strcat(s, ".out")>;
o = e("x");
file a[] <array_mapper; files=[s, strcat(s, "2")]>;
a[0] = e("a0"); a[1] = e("a1");
file p <simple_mapper; prefix=s, suffix=".sm">;
p = e("sm");
//= hello.out x\n
//= hello a0\n
//= hello2 a1\n
//= hello.sm sm\n
