file f <"http://example.org/x.dat">;
app (file o) get(file i) { echo @i stdout=@o; }
file o <"o.txt"> = get(f);
//= o.txt http://example.org/x.dat\n
