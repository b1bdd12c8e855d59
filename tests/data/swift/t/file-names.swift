// names of files computed in many ways
app (file o) cp1(file i) { "cp" i o; }
file x = input("in.txt"); file y<"y.txt">; y = cp1(x); file z<strcat(filename(y), ".z")> = cp1(y); printf("%s %s", filename(z), trim(read(z)));
string names[] = ["n1", "n2"]; foreach n, i in names { file f<n + ".out"> = cp1(x); printf("%s", filename(f)); }
file w <"a" + "b"> = cp1(x); printf("%s", filename(w)); file dirf<"dd"/"f"> = cp1(x); printf(filename(dirf));
file A[]; A[0] = x; A[1] = y; foreach f in A { printf("%s", trim(read(f))); }
string r = read(cp1(cp1(x))); printf("%s", r); 
file i2 = input_file("in.txt"); trace(filename(i2), file_size(i2)); 
printf("%s", filename(input("in.txt")));
//@ in.txt content\n
//> ab
//> dd/f
//> n1.out
//> n2.out
//> trace: in.txt,8
//> in.txt
//> content
//> content
//> y.txt.z content
//> content
//>
