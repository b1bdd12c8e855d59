int x = ;
//! expression
