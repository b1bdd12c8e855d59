// keys of other types, generic keys
<K, V> (int o) sz(V A[K]) { o = size(A); }
trace(sz([1,2]), sz({"a": 1.0}));
int A[float]; A[1.5] = 3; trace(A[1.5], size(A)); int B[boolean]; B[true] = 1; trace(B[true]);
//> trace: 1
//> trace: 2,1
//> trace: 3,1
