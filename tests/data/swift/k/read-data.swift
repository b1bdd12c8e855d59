//@ int.txt 42\n
//@ list.txt 1.5\n2.5\n
//@ table.txt x y\n1 a\n2 b\n
type row { int x; string y; }
int i = readData("int.txt");
float l[] = readData("list.txt");
row t[] = readData("table.txt");
trace(i, l[1], length(l));
foreach r in t { trace(r.x, r.y); }
//> SwiftScript trace: 42, 2.5, 2
//> SwiftScript trace: 1, a
//> SwiftScript trace: 2, b
