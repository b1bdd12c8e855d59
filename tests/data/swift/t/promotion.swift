float x = 3;
trace(x, x + 1, 2 * 1.5);
//> trace: 3.0,4.0,3.0
