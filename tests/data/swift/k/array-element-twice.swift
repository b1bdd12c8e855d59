int a[];
a[0] = 1;
a[0] = 2;
trace(a[0]);
//! a
