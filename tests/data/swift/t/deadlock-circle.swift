// two variables that wait for each other
int x; int y; if (x == 1) { y = 1; } else { y = 2; } if (y == 1) { x = 1; } else { x = 2; } trace(x,y);
//! 'x' waits for itself, by way of 'y'
