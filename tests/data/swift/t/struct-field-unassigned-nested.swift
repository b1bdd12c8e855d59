// fields of structs in structs
type s { int a; int b; } type t { s x; s y[]; } t v; v.x.a = 1; v.y[0].a = 1; trace(v.x.a, v.y[0].a, v.x.b, v.y[0].b);
//! nothing assigns 'v.y[0].b'
