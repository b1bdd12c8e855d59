type file;
file x <"x.txt">;
app (file o) f() { echo "new" stdout=@o; }
x = f();
//@ x.txt old
//= x.txt new\n
