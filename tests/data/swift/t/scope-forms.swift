// inner variables hide outer ones
int x = 1;
{ int x = 2; trace("inner", x); { int x = 3; trace("inner2", x); } }
trace("outer", x);
foreach i in [0:0] { int x = 5; trace("loop", x); }
if (true) { int x = 6; trace("if", x); }
int i = 9; foreach i in [1:1] { trace("li", i); } trace("i", i);
//> trace: inner,2
//> trace: inner2,3
//> trace: outer,1
//> trace: if,6
//> trace: i,9
//> trace: loop,5
//> trace: li,1
