printf("%s %s", "a");
//! not enough arguments
