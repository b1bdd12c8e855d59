// constants by constants
global const int N = 3; global const string S = "s"; global const float F = 2; global const float PI2 = PI * 2; global const int M = N * 2;
global const boolean B = true;
f() { trace(N, S, F, M, B); } f();
main { trace(N); }
//> trace: 3
//> trace: 3,s,2.0,6,1
