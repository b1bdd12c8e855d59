// read under a condition too
int x; int c = f(); if (c == 0) { x = 1; } if (c == 1) { trace(x); } trace("fine"); (int o) f() { o = 2; }
//> trace: fine
