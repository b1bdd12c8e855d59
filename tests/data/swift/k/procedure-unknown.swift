trace(strcta("a", "b"));
//! strcat
