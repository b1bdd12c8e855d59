iterate i { trace(i); } until (i >= 3);
//> SwiftScript trace: 0
//> SwiftScript trace: 1
//> SwiftScript trace: 2
