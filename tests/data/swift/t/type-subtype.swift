type text file;
app (text o) make(string s) { "echo" s @stdout=o; }
(int n) length_of(file f) { n = strlen(read(f)); }
text t = make("abc");
trace(length_of(t));
//> trace: 4
