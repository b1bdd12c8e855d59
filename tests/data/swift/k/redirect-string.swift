app (file o) f() { sh "-c" "echo out; echo err >&2" stdout="o.txt" stderr="/dev/null"; }
file o <"o.txt">;
o = f();
app (file o) g(file i) { cat stdin="i.txt" stdout = @filename(o); }
file i <"i.txt">; file p <"p.txt"> = g(i);
//@ i.txt I\n
//= o.txt out\n
//= p.txt I\n
