import assert;
trace("top");
main { trace("main"); }
//> trace: top
//> trace: main
