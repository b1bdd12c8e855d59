trace(1 < 2, "a" < "b", "a" == "a", 2 != 2, 1.5 >= 1.5);
//> SwiftScript trace: true, true, true, false, true
