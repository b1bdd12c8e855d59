trace(PI > 3.1415 && PI < 3.1416);
printf("%.3f", E);
//> trace: 1
//> 2.718
