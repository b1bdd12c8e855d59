int m[string] = {"a": 1, "b": 2};
trace(m["a"] + m["b"], size(m));
//> trace: 3,2
