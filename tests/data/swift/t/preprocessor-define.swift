#define N 3
#define SQUARE(x) ((x) * (x))
trace(N, SQUARE(N + 1));
//> trace: 3,16
