trace(true && false, true || false, !false);
//> trace: 0,1,1
