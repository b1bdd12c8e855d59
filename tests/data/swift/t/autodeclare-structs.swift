// undeclared structs and arrays of them
type s { int a; } v = s(1); w[0] = v; trace(w[0].a); u = w; trace(u[0].a);
//> trace: 1
//> trace: 1
