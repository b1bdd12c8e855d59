(int o) howmany(int... xs) { o = size(xs); }
trace(howmany(1, 2, 3), howmany());
//> trace: 3,0
