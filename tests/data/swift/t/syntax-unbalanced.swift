if (true) { trace(1);
//! }
