type s { int a; }
type s { int b; }
s x; x.a = 1;
//! second time
