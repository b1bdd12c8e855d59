type file;
app (file o) make(string s) { echo s stdout=@o; }
file f <simple_mapper; prefix="a", suffix=".txt", noauto="perhaps">;
f = make("x");
//! noauto is true or false, and not perhaps
