// composite functions return element by element
app (file o) e(string s) { "echo" s @stdout=o; }
(file o[]) many(int n) { foreach i in [0:n-1] { o[i] = e("m" + i); } }
(file x, file y) two() { x = e("x"); y = e("y"); }
file a<"aa">; file b<"bb">; (a, b) = two(); printf("%s", trim(read(a)) + trim(read(b)));
foreach f, i in many(3) { printf("%i%s", i, trim(read(f))); }
//> 0m0
//> 1m1
//> xy
//> 2m2
