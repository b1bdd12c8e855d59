// signs, rounding, what is not defined
int a = 5; int b = -3;
trace(a %% b, b %% a, a %/ b, b %/ a, abs(b), max(a, b), min(a, b), a ** 2, 2 ** 0.5, pow_integer(2, 10), mod_integer(7, 3));
trace(round(0.5), round(1.5), round(-0.5), floor(-1.5), ceil(-1.5), toint(1e3), float2int(-2.9), is_nan(NaN), is_nan(0.0/0.0));
trace(sqrt(-1.0), log(0.0), exp(1000.0), log(-1.0), 1.0/0.0, -1/0.0, atan2(1.0, 1.0), log10(1000.0));
//> trace: 2,-3,-1,0,3,5,-3,25.0,1.4142135623730951,1024,1
//> trace: 1.0,2.0,-1.0,-2.0,-1.0,1000,-2,1,1
//> trace: NaN,-Inf,Inf,NaN,Inf,-Inf,0.7853981633974483,3.0
