type a; type b;
app (a o) fa() { echo "x" stdout=@o; }
app (b o) fb(b i) { cat @i stdout=@o; }
a x <"x">; x = fa();
b y <"y">; y = fb(x);
//! type
