// app functions in all forms
app (file o) echo1(string s) { "echo" s @stdout=o }
app (file o) echo2(int i, float f, string s, boolean b) { "echo" i f s b @stdout=o; }
app (file o, file e) both() { "sh" "-c" "echo out; echo err >&2" @stdout=o @stderr=e; }
app (file o) cat(file i) { "cat" @stdin=i @stdout=o; }
app (file o) cats(file a[]) { "cat" a @stdout=o; }
app (void v) nothing(string s) { "true" s; }
app nothing2(string s) { "true" s; }
app () nothing3(string s) { "true" s; }
app (file o) words() { "printf" "[%s]" 1 [2,3] [[5,6],[7]] [[],[]] "a b" "q\"q" -5 (1+2) "it's" @stdout=o; }
app (file o) touch2() { "touch" o; }
app (file o) copy(file i) { "cp" i o; }
app (file o) copy2(file i) { "cp" @i @o; }
app (file o) prog(string p, string arg) { p arg @stdout=o; }
printf("1:%s", trim(read(echo1("hello  world"))));
printf("2:%s", trim(read(echo2(1, 2.5, "s t", true))));
(file x, file y) = both(); printf("3:%s%s", trim(read(x)), trim(read(y)));
file f<"d/e/f.txt"> = echo1("in file"); 
printf("4:%s", trim(read(cat(f))));
file arr[]; foreach i in [0:3] { arr[i] = echo1("n" + i); }
printf("5:%s", replace_all(read(cats(arr)), "\n", ","));
nothing("x") => printf("6");
nothing2("y") => printf("7"); nothing3("z");
printf("8:%s", read(words()));
file t = touch2(); printf("9:[%s]", read(t));
file u<"u.txt"> = copy(f); printf("10:%s", trim(read(u)));
file w<"w.txt"> = copy2(u); printf("11:%s", trim(read(w)));
printf("12:%s", trim(read(prog("echo", "dyn"))));
file in3 = input("in.txt"); printf("13:%s", trim(read(cat(in3))));
file in2<"in.txt">; printf("14:%s", trim(read(cat(in2))));
file cp2<"cp2.txt"> = f; printf("15:%s", trim(read(cp2)));
printf("16:%s", read(copy(write("written"))));
file A[];
foreach i in [0:1] { file o<sprintf("out-%d.txt", i)> = echo1("o" + i); A[i] = o; }
foreach a, i in A { printf("17:%i %s", i, filename(a)); }
wait deep (A) { foreach g in glob("out-*.txt") { printf("18:%s", filename(g)); } }
//@ in.txt content\n
//> 7
//> 17:0 out-0.txt
//> 17:1 out-1.txt
//> 2:1 2.5 s t 1
//> 1:hello  world
//> 6
//> 3:outerr
//> 8:[1][2][3][5][6][7][a b][q"q][-5][3][it's]
//> 9:[]
//> 12:dyn
//> 18:out-0.txt
//> 18:out-1.txt
//> 13:content
//> 4:in file
//> 14:content
//> 16:written
//> 10:in file
//> 15:in file
//> 11:in file
//> 5:n0,n1,n2,n3,
