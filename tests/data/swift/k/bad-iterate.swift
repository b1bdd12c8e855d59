iterate i { trace(i); }
//! until
