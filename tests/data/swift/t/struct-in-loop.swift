// structs made in a loop
type p { int x; int y; } p A[]; foreach i in [0:2] { p q; q.x = i; q.y = i * i; A[i] = q; } foreach e in A { trace(e.x + e.y); } int s[]; foreach e, i in A { s[i] = e.y; } trace(sum(s));
//> trace: 0
//> trace: 2
//> trace: 6
//> trace: 5
