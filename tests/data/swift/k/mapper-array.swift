type file;
app (file o) number(int i) { echo i stdout=@o; }
string names[] = ["x.txt", "y.txt"];
file fs[] <array_mapper; files=names>;
foreach n, i in names { fs[i] = number(i); }
//= x.txt 0\n
//= y.txt 1\n
