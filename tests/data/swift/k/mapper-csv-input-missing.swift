type p { file a; file b; }
p g[] <csv_mapper; file="l.csv">;
app (file o) cat(file i) { cat @i stdout=@o; }
file o <"o.txt"> = cat(g[0].b);
//@ l.csv a b\nx y\n
//! y
