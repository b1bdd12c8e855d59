trace(1.5, 2e-3, 1.0);
float a = inf;
trace(is_inf(a), is_nan(NaN));
//> trace: 1.5,0.002,1.0
//> trace: 1,1
