int fib[];
fib[0] = 0;
fib[1] = 1;
foreach i in [2:50] { fib[i] = fib[i - 1] + fib[i - 2]; }
trace(fib[50]);
//> trace: 12586269025
