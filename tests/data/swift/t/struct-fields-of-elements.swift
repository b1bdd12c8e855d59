// which elements there are is known at the run only
type s { int a; int b; } s v[]; v[0].a = 1; v[1].b = 2; trace(v[0].a, v[1].b);
//> trace: 1,2
