int x = 3;
if (x > 2) { trace("big"); } else { trace("small"); }
if (x == 1) { trace("one"); } else if (x == 3) { trace("three"); } else { trace("other"); }
//> SwiftScript trace: big
//> SwiftScript trace: three
