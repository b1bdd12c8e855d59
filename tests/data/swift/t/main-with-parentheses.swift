main() { trace(1); }
//> trace: 1
