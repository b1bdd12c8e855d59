int x = 1;
{ int x = 2; trace(x); }
trace(x);
//> SwiftScript trace: 2
//> SwiftScript trace: 1
