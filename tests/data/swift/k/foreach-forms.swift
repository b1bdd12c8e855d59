foreach i in [1:10:4] { tracef("a%i\n", i); }
foreach v, k in strsplit("x,y", ",") { tracef("b%s%i\n", v, k); }
foreach f in [0.0:1.0:0.5] { tracef("c%f\n", f); }
foreach i in [3:1:-1] { tracef("d%i\n", i); }
foreach i in [5:1] { tracef("never\n"); }
int n = 2;
foreach i in [0:n-1] { foreach j in [i:n] { tracef("e%i%i\n", i, j); } }
foreach i,k in [10,20] { tracef("f%i%i\n", i, k); }
//> a1
//> a5
//> a9
//> bx0
//> by1
//> c0.000000
//> c0.500000
//> c1.000000
//> d3
//> d2
//> d1
//> e00
//> e01
//> e02
//> e11
//> e12
//> f100
//> f201
