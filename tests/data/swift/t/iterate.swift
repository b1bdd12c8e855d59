iterate i { trace(i); } until (i >= 2);
//> trace: 0
//> trace: 1
//> trace: 2
