foreach i in [0:10:5] { trace(i); }
//> SwiftScript trace: 0
//> SwiftScript trace: 5
//> SwiftScript trace: 10
