type S { int field; }
(int a, int b) two() { a = 1; b = 2; }
int A[]; S s;
(A[3], s.field) = two();
trace(A[3], s.field);
//> trace: 1,2
