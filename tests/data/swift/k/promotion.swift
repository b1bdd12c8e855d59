float x = 3;
trace(x);
//> SwiftScript trace: 3.0
