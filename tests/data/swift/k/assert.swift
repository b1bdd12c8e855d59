assert(1 == 1, "fine");
