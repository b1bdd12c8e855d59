global const int N = 2;
global const string NAME = "n";
trace(NAME + N);
//> trace: n2
