type file;
app (file o) number() { echo "7" stdout=@o; }
file f = number();
int n = readData(f);
trace(n + 1);
//> SwiftScript trace: 8
