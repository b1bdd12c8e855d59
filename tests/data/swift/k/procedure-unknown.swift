trace(strcatt("a", "b"));
//! strcat
