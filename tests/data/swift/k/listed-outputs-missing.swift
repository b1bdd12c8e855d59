// the app does not make one of the files that it named
app (file out[]) some() { touch @out[0]; }
file p[] <fixed_array_mapper; files="x.txt y.txt">;
p = some();
//! the app has not made y.txt, which the mapper of p names
