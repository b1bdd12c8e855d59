// ranges of floats, downwards, empty
foreach x in [0.0:1.0:0.25] { trace(x); } foreach x, i in [1:2:0.5] { trace(i, x); } foreach i in [3:1] { trace("no"); } foreach i in [5:1:-2] { trace(i); }
//> trace: 0.0
//> trace: 0.25
//> trace: 0.5
//> trace: 0.75
//> trace: 1.0
//> trace: 0,1.0
//> trace: 1,1.5
//> trace: 2,2.0
//> trace: 5
//> trace: 3
//> trace: 1
