int A[] = [];
foreach v in A { trace(v); }
trace(size(A));
//> trace: 0
