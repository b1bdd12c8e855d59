// a copy onto itself is none
file a<"x"> = write("q"); file b<"x"> = a; printf("%s", read(b));
//> q
