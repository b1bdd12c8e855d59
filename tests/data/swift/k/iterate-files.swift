app (file o) first() { echo "x" stdout=@o; }
app (file o) next(file i) { sh "-c" "cat $0; cat $0" @i stdout=@o; }
app (file o) count(file i) { wc "-l" stdin=@i stdout=@o; }
file f[];
f[0] = first();
iterate i {
  f[i+1] = next(f[i]);
  int n = readData(count(f[i+1]));
  trace(i, n);
} until (n > 7);
//> SwiftScript trace: 0, 2
//> SwiftScript trace: 1, 4
//> SwiftScript trace: 2, 8
