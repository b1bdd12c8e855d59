// iterate with an array and a condition
int A[];
A[0] = 1;
iterate i { A[i+1] = A[i] * 2; } until (i == 4);
trace(size(A), A[5]);
iterate j { trace(j); } until (j >= 2 || false);
//> trace: 6,32
//> trace: 0
//> trace: 1
//> trace: 2
