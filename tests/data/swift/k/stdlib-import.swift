import "stdlib.v2";
trace("x");
//> SwiftScript trace: x
