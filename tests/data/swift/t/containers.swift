int m[string] = {"b": 1, "a": 2};
string keys[] = keys_string(m);
trace(size(keys), contains(m, "a"), contains(m, "z"), join(keys, ","));
int A[];
A[3] = 1;
A[5] = 2;
foreach k in keys_integer(A) { trace(k); }
//> trace: 2,1,0,a,b
//> trace: 3
//> trace: 5
