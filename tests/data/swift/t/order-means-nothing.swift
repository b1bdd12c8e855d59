int x; int y; int z;
z = x + y;
trace(z);
y = x + 1;
x = 1;
//> trace: 3
