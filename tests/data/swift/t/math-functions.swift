trace(sqrt(16.0), exp(0.0), floor(2.7), ceil(2.1), round(2.5), abs(-3), abs_float(-1.5), pow(2.0, 10.0));
trace(max(1, 2), min(1.5, 2.5), max_integer(3, 2), log10(1000.0) > 2.99, sin(0.0), cos(0.0));
//> trace: 4.0,1.0,2.0,3.0,3.0,3,1.5,1024.0
//> trace: 2,1.5,3,1,0.0,1.0
