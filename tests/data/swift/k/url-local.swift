file f <"file://localhost//bin/true">;
app (file o) cat(file i) { echo @i stdout=@o; }
file o <"o.txt"> = cat(f);
//= o.txt /bin/true\n
