app (file o[]) f() { sh "-c" "echo 1 > a; echo 2 > b"; }
file o[] <fixed_array_mapper; files="a,b">;
o = f();
app (file o[]) g(file x[]) { sh "-c" "cat $0 > c; cat $1 > d" @x[0] @x[1]; }
file p[] <array_mapper; files=["c", "d"]>;
p = g(o);
foreach x, i in p { trace(i, @x); }
//= a 1\n
//= d 2\n
//> SwiftScript trace: 0, c
//> SwiftScript trace: 1, d
