type file;
app (file o) f(file i) { cat @i stdout=@o; }
file i <"not-there.txt">;
file o <"o.txt"> = f(i);
//! not-there.txt
