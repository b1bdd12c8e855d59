int A[] = [1, 2, 3, 4];
float B[] = [1.0, 2.0, 3.0];
trace(sum_integer(A), sum_float(B), avg(A), std(B) > 0.81 && std(B) < 0.82, max(A), min(A));
//> trace: 10,6.0,2.5,1,4,1
