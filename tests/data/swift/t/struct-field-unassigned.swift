// a field that no statement assigns
type s { int a; int b; } s v; v.a = 1; trace(v.b);
//! nothing assigns 'v.b'
