printf("hello %s", "world");
//> hello world
