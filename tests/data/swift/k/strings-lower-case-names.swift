trace(toint("3"), tofloat("2"), tostring(1));
//> SwiftScript trace: 3, 2.0, 1
