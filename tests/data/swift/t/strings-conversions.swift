trace(toint("42") + 1, string2int("7"), parseInt("10", 16), fromint(5) + "!", int2string(6), tofloat("1.5"), string2float("2"), itof(3));
trace(isint("12"), isint("a"), toint(3.9), fromfloat(0.5), float2string(1.0));
//> trace: 43,7,16,5!,6,1.5,2.0,3.0
//> trace: 1,0,3,0.5,1.0
