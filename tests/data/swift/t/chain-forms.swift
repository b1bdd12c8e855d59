// chains of all kinds of statements
int x = 1 => int y = x + 1 => trace("one", y) => { trace("block"); } => trace("after");
void v = sleep(0.01) => trace("v");
wait (v) { trace("waited"); }
f(1) => f(2) => f(3);
(void o) f(int i) { trace("f", i) => o = makeVoid(); }
int a; int b; a = 1 => b = 2 => trace(a, b);
printf("p") => printf("q");
if (x == 1) { trace("if"); } => trace("after if");
foreach i in [0:2] { trace("loop", i); } => trace("after loop");
//> trace: one,2
//> trace: block
//> trace: after
//> trace: 1,2
//> trace: if
//> trace: after if
//> trace: after loop
//> trace: f,1
//> trace: f,2
//> trace: f,3
//> trace: loop,0
//> trace: loop,1
//> trace: loop,2
//> p
//> q
//> trace: v
//> trace: waited
