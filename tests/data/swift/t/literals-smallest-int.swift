// the smallest int
int m = -9223372036854775808; trace(m);
//> trace: -9223372036854775808
