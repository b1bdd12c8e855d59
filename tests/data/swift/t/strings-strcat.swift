trace(strcat("a", "b", "c"), strcat());
//> trace: abc,
