tracef("%i\n", "text");
//! %i
