float t = clock();
sleep(0.01) => float u = clock();
assert(u >= t, "time");
trace(t > 1000000000.0);
//> trace: 1
