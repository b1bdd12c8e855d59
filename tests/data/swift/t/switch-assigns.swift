int x;
switch (3) { case 1: x = 10; case 3: x = 30; default: x = 0; }
trace(x);
//> trace: 30
