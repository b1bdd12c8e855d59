trace(toUpper("abc"), toLower("ABC"), trim("  x \n"));
//> trace: ABC,abc,x
