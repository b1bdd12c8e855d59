type file;
app (file o) e(string s) { echo s stdout=@o; }
file f[][] <simple_mapper; prefix="m", suffix=".x">;
foreach i in [0:1] { foreach j in [0:1] { f[i][j] = e(strcat(i, j)); } }
//= m0001_0000.x 10\n
//= m0000_0001.x 01\n
