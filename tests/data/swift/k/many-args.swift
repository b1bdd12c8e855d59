app (file o) f(string a[]) { echo a stdout=@o; }
app (file o) g(int[] a, float x) { echo "-n" a "--x" x stdout=@o; }
file o <"o.txt"> = f(["a b", "c"]);
file p <"p.txt"> = g([1,2], 0.5);
//= o.txt a b c\n
//= p.txt 1 2 --x 0.5
