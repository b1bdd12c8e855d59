// switch: negative labels, blocks, no case that fits
foreach i in [0:4] { switch (i) { case 0: trace("zero"); case 1: trace("one"); x = 3; trace(x); case 2: { trace("two"); } case -1: trace("minus"); default: trace("def", i); } }
int y; switch (2) { case 1: y = 10; case 2: y = 20; default: y = 30; } trace(y);
switch (1 + 1) { default: trace("only"); }
switch (3) { case 1: trace("no"); }
//> trace: 20
//> trace: only
//> trace: zero
//> trace: one
//> trace: 3
//> trace: two
//> trace: def,3
//> trace: def,4
