trace(nowhere);
//! nowhere
