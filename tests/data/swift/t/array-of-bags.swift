// bags as elements
bag<int> A[]; foreach i in [0:5] { A[i %% 2] += i; } foreach b, i in A { trace(i, size(b), sum(b)); }
//> trace: 0,3,6
//> trace: 1,3,9
