tracef("%s is %i and %f, %b\n", "x", 3, 1.5, true);
tracef("%p %p\n", 1, "two");
int a[] = [1, 2, 3];
tracef("%q\n", a);
//> x is 3 and 1.500000, true
//> 1 two
//> [1,2,3]
