int S[];
foreach i in [0:2] { foreach j in [0:2] { S[i * 3 + j] = i * j; } }
trace(sum(S));
//> trace: 9
