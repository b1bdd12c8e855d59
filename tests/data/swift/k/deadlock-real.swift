int x; int y;
x = y + 1;
y = x + 1;
trace(x);
//! x
