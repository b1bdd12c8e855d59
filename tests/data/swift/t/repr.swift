trace(repr([1, 2]), repr(1.5), repr("s"));
string r[] = array_repr([1.5, 2.0]);
trace(r[0], r[1]);
//> trace: {0:1, 1:2},1.5,s
//> trace: 1.5,2.0
