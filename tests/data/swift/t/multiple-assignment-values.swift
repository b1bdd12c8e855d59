int a; int b;
a, b = 1, 2;
trace(a, b);
//> trace: 1,2
