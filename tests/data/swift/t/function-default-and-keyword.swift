(int o) f(int x, int y=10, int z=100) { o = x + y + z; }
trace(f(1), f(1, 2), f(1, z=3));
//> trace: 111,103,14
