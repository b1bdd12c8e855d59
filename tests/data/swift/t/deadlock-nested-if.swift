// an if in an if
int x; int c = f(); if (c == 1) { if (c == 2) { x = 1; } } else { x = 2; } trace(x); (int o) f() { o = 1; }
//! 'x' is assigned only under a condition
