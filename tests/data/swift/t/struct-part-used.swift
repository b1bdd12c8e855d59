// a field that nobody reads need not be assigned
type q { int z; } type s { int a; int b[]; q c; q d[]; } s v; v.a = 1; f(v); f(s x) { trace(x.a, size(x.d)); } 
//> trace: 1,0
