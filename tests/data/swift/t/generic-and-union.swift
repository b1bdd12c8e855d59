<T> (int o) count2(T A[]) { o = size(A) * 2; }
trace(count2([1, 2]), count2(["a"]));
//> trace: 4,2
