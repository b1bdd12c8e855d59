type inner { int a; }
type outer { inner i; string s; }
outer o;
o.i.a = 4;
o.s = "s";
trace(o.i.a, o.s);
//> trace: 4,s
