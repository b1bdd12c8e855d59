trace("a") => trace("b") => trace("c");
//> trace: a
//> trace: b
//> trace: c
