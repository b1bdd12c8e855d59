app (file o) number(int i) { "echo" i @stdout=o; }
app (file o) cat(file F[]) { "cat" F @stdout=o; }
file F[];
foreach i in [0:3] {
  file o<"n-%d.txt" % i> = number(i);
  F[i] = o;
}
file all<"all.txt"> = cat(F);
//= all.txt 0\n1\n2\n3\n
//= n-2.txt 2\n
