trace(!5);
//! boolean
