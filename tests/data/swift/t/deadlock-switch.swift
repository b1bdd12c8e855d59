// a switch without default
int x; int c = f(); switch (c) { case 1: x = 1; case 2: x = 2; } trace(x); (int o) f() { o = 1; }
//! 'x' is assigned only under a condition
