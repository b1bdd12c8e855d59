int x = 1;
wait (x) { trace("after"); }
//> trace: after
