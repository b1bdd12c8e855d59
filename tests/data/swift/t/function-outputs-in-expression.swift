// several outputs where one is wanted
int x = f(); int y = f() + 1; wait (f()) { } (int a, int b) f() { a = 1; b = 2; }
//! f gives 2 values
