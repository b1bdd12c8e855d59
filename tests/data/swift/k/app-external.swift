type file;
(external e) first() { app { sh "-c" "echo first"; } }
app (external o) second(external i) { true; }
app (file o) third(external i) { echo "third" stdout=@o; }
external a, b;
a = first();
b = second(a);
file o <"o.txt">;
o = third(b);
//= o.txt third\n
