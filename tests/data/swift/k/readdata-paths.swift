type B { int n; string s; }
type A { B b[]; float x; }
A a = readData("a.txt");
trace(a.b[1].n, a.b[0].s, a.x);
//@ a.txt b[0].n = 1\nb[0].s = "one"\nb[1].n = 2\nb[1].s = two\nx = 1.5\n
//> SwiftScript trace: 2, one, 1.5
