int x = 1;
if (x == 1) { int y = 2; trace(y); }
foreach i in [0:0] { int y = 3; trace(y); }
//> trace: 2
//> trace: 3
