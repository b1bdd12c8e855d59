float m; float s;
(m, s) = stats([2.0, 4.0]);
trace(m, s);
//> trace: 3.0,1.0
