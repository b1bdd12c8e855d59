int x = 1;
{ int y = x + 1; trace(y); }
{ int y = x + 2; trace(y); }
//> trace: 2
//> trace: 3
