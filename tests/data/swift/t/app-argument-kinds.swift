// arguments of app functions of all types
app (file o) f(file i[], string s[], int n[]) { "sh" "-c" "printf '%s|' \"$@\" | sed s,/.*/,," "sh" s n (size(i)) @stdout=o; }
file a<"a1"> = write("1"); file b<"b1"> = write("2");
printf("%s", read(f([a,b], ["x y","z"], [1:3])));
app (file o) g(float x) { "echo" x (x*2.0) (strcat("v=", x)) @stdout=o; }
printf("%s", trim(read(g(1))));
@suppress=unused_output app (file o, file log) h(string s) { "sh" "-c" "echo $0 > $1; echo log > $2" s o log; }
file h1; file h2; (h1, h2) = h("sss"); printf("%s%s", trim(read(h1)), trim(read(h2)));
@dispatch=WORKER app (void o) k() { "true" } 
k() => printf("k");
app (file o) m(file i) { "cat" @stdin=i "-" @stdout=o; }
printf("%s", read(m(a)));
//> k
//> 1.0 2.0 v=1.0
//> ssslog
//> 1
//> x y|z|1|2|3|2|
