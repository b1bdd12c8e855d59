type file;
app (file o) bad() { sh "-c" "exit 3" stdout=@o; }
file o <"o.txt"> = bad();
//! bad
