// a variable as a link of a chain: what follows waits for it
x => trace("x done", x); int x = 3; int A[] = [1,2]; A => trace("A", size(A)) => trace("then"); 
void v = sleep(0.01); v => { trace("v"); }
trace("first") => v => trace("after v");
type s { int a; } s t; t.a = 4; t.a => trace("t.a"); A[1] => x => trace("both");
//> trace: first
//> trace: t.a
//> trace: both
//> trace: x done,3
//> trace: A,2
//> trace: then
//> trace: v
//> trace: after v
