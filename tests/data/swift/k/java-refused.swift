float r = java("java.lang.Math", "sin", 0.5);
trace(r);
//! java
