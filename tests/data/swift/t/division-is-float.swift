float x = 7 / 2;
trace(x);
//> trace: 3.5
