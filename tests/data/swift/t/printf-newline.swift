printf("a\n");
//> a
//> 
