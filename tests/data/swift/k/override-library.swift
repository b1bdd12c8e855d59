app (file o) split(file i) { echo "split" @i stdout=@o; }
app (file o) sort(file i) { sort @i stdout=@o; }
(int r) sum(int a, int b) { r = a + b; }
(string s) join(string a, string b) { s = a + "/" + b; }
(int n) length(string s) { n = 42; }
file i <"i.txt">;
file o <"o.txt"> = split(i);
trace(sum(1, 2), join("a", "b"), length("x"));
//@ i.txt x
//= o.txt split i.txt\n
//> SwiftScript trace: 3, a/b, 42
