for (int i = 0; i < 3; i = i + 1) { trace(i); }
//> trace: 0
//> trace: 1
//> trace: 2
