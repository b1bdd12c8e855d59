app (file o) f() { "no-such-program-here" @stdout=o; }
file f = f();
trace(read(f));
//! no-such-program-here
