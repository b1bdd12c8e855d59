// tuples, structs with a field unset, exists, conversion to a subtype, a leaf function that nobody calls
type S { int a; int b; file f; }
type celsius float;
@pure (int o) leaf(int i) "pkg" "0.1" [ "set <<o>> <<i>>" ];
a, b = (1, "x"); (c, d) = (2, 3);
trace(a, b, c, d);
S s; s.a = 1; S t = s; S u[]; u[0] = t; S v = g(t);
(S o) g(S i) { o = i; }
trace(t.a, u[0].a, v.a);
int A[]; A[1] = 3; if (exists(A, 1)) { A[2] = 5; } trace(size(A));
celsius w = celsius(21.5); h(w); h(celsius x) { float y = x; trace(y); }
trace(toString(true), 7 %% -3, -7 %% 3, -7 %/ 2);
//> trace: 1,x,2,3
//> trace: 1,1,1
//> trace: 2
//> trace: 21.5
//> trace: true,1,-1,-3
