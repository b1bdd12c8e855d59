trace(7 / 2, 7 %/ 2, 7 %% 2, 2 + 1.5, "a" + 1, 1 + "b", "x" + 1.5 + true);
trace(1 < 2.5, "a" < "b", "a" == "a", "b" >= "c", 3 != 3, -2 * 3, 2 - -1);
trace(1 + 2 * 3 - 4, (1 + 2) * 3, 10 %/ 3 %% 2);
trace(6 / 2);
float f = 3;
trace(f);
trace(1.0e10, 1e-5, 0.1 + 0.2, 100.0, 1.0/3.0);
//> SwiftScript trace: 3.5, 3, 1, 3.5, a1, 1b, x1.5true
//> SwiftScript trace: true, true, true, false, false, -6, 3
//> SwiftScript trace: 3, 9, 1
//> SwiftScript trace: 3.0
//> SwiftScript trace: 3.0
//> SwiftScript trace: 1.0E10, 1.0E-5, 0.30000000000000004, 100.0, 0.3333333333333333
