type file;
app (file o) f() { profile "env:NAME" = "value"; sh "-c" "echo $NAME" stdout=@o; }
file o <"o.txt"> = f();
//= o.txt value\n
