type file;
type rec { string name; int n; float x; };
int i = readData("i.txt");
float f = readData("f.txt");
string s = readData("s.txt");
int[] a = readData("a.txt");
string[] l = readData("l.txt");
rec r = readData("r.txt");
rec[] rs = readData("rs.txt");
boolean b = readData("b.txt");
file ff <"i.txt">;
int j = @readdata(ff);
trace(i, f, s, length(a), a[1], l[1], r.name, r.x, rs[1].n, b, j);
//@ i.txt 42\n
//@ f.txt 1.5\n
//@ s.txt hello world\n
//@ a.txt 1\n2\n3\n
//@ l.txt one two\nthree\n
//@ r.txt name n x\nbob 3 2.5\n
//@ rs.txt name n x\nbob 3 2.5\namy 4 1\n
//@ b.txt true\n
//> SwiftScript trace: 42, 1.5, hello world, 3, 2, three, bob, 2.5, 4, true, 42
