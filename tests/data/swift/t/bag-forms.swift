// bags of everything, from loops, in arrays
bag<int> b; b += 1; b += 2; b += [3,4];
trace(size(b), sum(b));
foreach v in b { trace("v", v); }
bag<string> bs[]; bs[0] += "a"; bs[0] += "b"; bs[1] += "c";
trace(size(bs[0]), size(bs));
bag<int> e; trace(size(e));
foreach i in [1:5] { b += i; }
bag<bag<int>> bb; 
bag<int[]> ba; ba += [1,2]; ba += [3,4]; trace(size(ba));
//> trace: 2,2
//> trace: 0
//> trace: 2
//> trace: v,1
//> trace: v,2
//> trace: v,3
//> trace: v,4
//> trace: 9,25
//> trace: v,1
//> trace: v,2
//> trace: v,3
//> trace: v,4
//> trace: v,5
