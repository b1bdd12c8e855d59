tracef("%k%s\n", 1, "shown");
//> shown
