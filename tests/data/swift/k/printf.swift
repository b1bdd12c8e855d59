printf("%s-%s\n", "a", "b");
//> a-b
