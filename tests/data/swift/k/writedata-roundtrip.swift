type p { string n; int v; float x; boolean b; }
p[] ps; ps[0].n = "a"; ps[0].v = 1; ps[0].x = 1.5; ps[0].b = true;
file f <"p.txt"> = writeData(ps);
p[] qs = readData(f);
trace(qs[0].n, qs[0].v, qs[0].x, qs[0].b);
p one; one.n = "z"; one.v = 9; one.x = 0; one.b = false;
file g <"one.txt"> = writeData(one);
p two = readData(g);
trace(two.n, two.x);
file h <"b.txt"> = writeData(true);
boolean c = readData(h);
trace(c);
//= p.txt n	v	x	b\n"a"	1	1.5	true\n
//> SwiftScript trace: a, 1, 1.5, true
//> SwiftScript trace: z, 0.0
//> SwiftScript trace: true
