app (file o) lazy() { "true"; }
file f<"never.txt"> = lazy();
trace(read(f));
//! never.txt
