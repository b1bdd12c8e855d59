// files copied, in arrays, in structs, through functions
file a = write("A"); file b<"b.txt"> = a; file c<"sub/c.txt"> = b; printf("%s%s", read(b), read(c)); trace(filename(b));
file F[string]; F["x"] = a; F["y"] = b; foreach f, k in F { printf("%s=%s", k, read(f)); }
file g = write("G"); trace(strlen(filename(g)) > 0);
trace(size(glob("*.nope")));
type s { file f; file fs[]; } s v; v.f = a; v.fs[0] = b; printf("%s", read(v.fs[0]));
(file o) pass(file i) { o = i; } file p<"p.txt"> = pass(a); printf("%s", read(p)); file q = pass(pass(a)); printf("%s", read(q));
//> trace: b.txt
//> trace: 1
//> trace: 0
//> x=A
//> A
//> A
//> y=A
//> A
//> AA
