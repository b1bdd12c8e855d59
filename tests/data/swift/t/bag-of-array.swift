bag<int> b;
b += [1, 2, 3];
b += 4;
trace(size(b), sum(b));
//> trace: 4,10
