// types of files without a base, aliases
type op; type msg file; type arr int[]; typedef m2 file;
app (msg o) mk() { "echo" "hi" @stdout=o; }
app (file o) rd(file i) { "cat" i @stdout=o; }
app (op o) mo() { "echo" "op" @stdout=o; } app (file o) ro(op i) { "cat" i @stdout=o; }
msg m = mk(); printf("%s", read(rd(m))); m2 q = rd(m); printf("%i", strlen(filename(q)));
printf("%s", read(ro(mo())));
op f<"opfile"> = mo(); printf("%s", read(f));
//> 16
//> op
//>
//> op
//>
//> hi
//>
