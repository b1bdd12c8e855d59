// an input has its value from the call
type s { int a; } f(s v) { v.a = 2; } f(s(1));
//! it has its value from the call
