string parts[] = split("a,b,c", ",");
trace(size(parts), parts[1], join(parts, "+"), string_join(parts, ""));
//> trace: 3,b,a+b+c,abc
