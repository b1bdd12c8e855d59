type inner { int a; }
type outer { inner i; string s; }
outer o;
o.i.a = 1;
o.s = "s";
trace(o.i.a, o.s);
//> SwiftScript trace: 1, s
