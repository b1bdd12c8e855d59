int a = 3;
trace(-a, !true, !(a == 4));
//> trace: -3,0,1
