type file;
app (file o) f() { true; }
file o <"o.txt"> = f();
//! o.txt
