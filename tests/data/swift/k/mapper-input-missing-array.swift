file g[] <fixed_array_mapper; files="nope nada">;
app (file o) cat(file i[]) { cat @filenames(i) stdout=@o; }
file o <"o.txt"> = cat(g);
//! nope
