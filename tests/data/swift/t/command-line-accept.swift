//$ -n=5 -wrong=1
argv_accept("n", "m");
//! -wrong
