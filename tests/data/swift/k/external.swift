type file;
app (external e) first() { sh "-c" "echo 1 > /dev/null"; }
app (file o) second(external e) { echo "after" stdout=@o; }
external e;
e = first();
file o <"o.txt"> = second(e);
//= o.txt after\n
