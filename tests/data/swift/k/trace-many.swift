trace("a", 1, 2.5, true);
//> SwiftScript trace: a, 1, 2.5, true
