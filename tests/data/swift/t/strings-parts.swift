trace(strlen("hello"), substring("hello", 1, 3), find("hello", "l", 0, -1), find("hello", "z", 0, -1));
//> trace: 5,ell,2,-1
