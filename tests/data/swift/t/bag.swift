bag<int> b;
foreach i in [1:4] { b += i; }
trace(size(b));
//> trace: 4
