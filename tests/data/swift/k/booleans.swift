trace(true && false, true || false, !true);
//> SwiftScript trace: false, true, false
