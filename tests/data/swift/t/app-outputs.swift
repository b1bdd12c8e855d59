// apps with signals and files as outputs
app (file o, void v) both() { "sh" "-c" "echo 1 > $0" o; }
file o; void v; (o, v) = both(); wait (v) { printf("%s", read(o)); }
app (void v1, void v2) two() { "true"; } void a; void b; (a, b) = two(); wait(a, b) { trace("two"); }
app (file o) one() { "touch" o } one();
@suppress=unused_output app (file o, file p) un() { "touch" o p; } (u1, u2) = un(); trace("un");
foreach i in [0:2] { app1(i); } app app1(int i) { "true" i; }
//> trace: un
//> trace: two
//> 1
//>
