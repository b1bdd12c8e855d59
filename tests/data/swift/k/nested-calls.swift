app (file o) e(string s) { echo s stdout=@o; }
app (file o) cat(file a, file b) { cat @a @b stdout=@o; }
file o <"o.txt"> = cat(cat(e("1"), e("2")), cat(e("3"), e("4")));
//= o.txt 1\n2\n3\n4\n
