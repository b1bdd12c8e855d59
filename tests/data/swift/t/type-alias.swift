typedef number int;
number n = 3;
trace(n + 1);
//> trace: 4
