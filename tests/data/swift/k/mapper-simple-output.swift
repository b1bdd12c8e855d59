type file;
app (file o) number(int i) { echo i stdout=@o; }
file fs[] <simple_mapper; location="out", prefix="f.", suffix=".txt">;
foreach i in [0:2] { fs[i] = number(i); }
//= out/f.0000.txt 0\n
//= out/f.0002.txt 2\n
