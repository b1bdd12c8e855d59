// Words of the language are no names of variables.
int foreach = 3;
trace(foreach);
//! 'foreach' is a word of the language
