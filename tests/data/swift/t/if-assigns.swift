int x;
if (2 > 1) { x = 1; } else { x = 2; }
trace(x);
//> trace: 1
