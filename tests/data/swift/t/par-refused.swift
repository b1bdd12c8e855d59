@par app (file o) f(int i) { "echo" i @stdout=o; }
file f = @par=4 f(1);
trace(read(f));
//! @par
