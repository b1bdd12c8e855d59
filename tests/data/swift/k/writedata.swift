type file;
type rec { string name; int n; };
int[] a = [3, 1, 2];
file f <"a.txt"> = writeData(a);
file g <"s.txt">; g = writeData("text");
rec[] r; r[0].name = "bob"; r[0].n = 1; r[1].name = "amy"; r[1].n = 2;
file h <"r.txt"> = writeData(r);
file i <"i.txt"> = @writedata(42);
file j <"names.txt"> = writeData(a2);
string[] a2 = ["x y", "z"];
//= a.txt 3\n1\n2\n
//= s.txt text
//= r.txt name	n\n"bob"	1\n"amy"	2\n
//= i.txt 42
//= names.txt x y\nz\n
