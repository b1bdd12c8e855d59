float x[];
x[0] = 100.0;
iterate i { x[i + 1] = x[i] / 2; } until (x[i] < 10.0);
trace(length(x));
//> SwiftScript trace: 5
