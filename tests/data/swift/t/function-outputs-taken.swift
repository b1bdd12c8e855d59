// several outputs taken, or none
int x; int y; (x, y) = f(); x2, y2 = f(); trace(x, y2); f(); (int a, int b) f() { a = 1; b = 2; }
//> trace: 1,2
