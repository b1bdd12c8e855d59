int[] xs = readData("xs.txt");
string s = readData("s.txt");
type p { string n; int v; }
p[] ps = readData("p.txt");
trace(xs[1], s, ps[0].v);
//@ xs.txt  4 \n 6	\n
//@ s.txt line one\nline two\n
//@ p.txt   n	v  \n  a		3\n\n
//> SwiftScript trace: 6, line one
//> line two, 3
