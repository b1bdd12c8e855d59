trace(-7 %% 2, -7 %/ 2, 7 %% 2, 1/0, -1.0/0);
trace("a" + 1 + 2, 1 + 2 + "a", !true || true, -2 * -3, 2 - 3 - 4);
trace(2.0 == 2, 1 != 1.5, true == false, true != false);
//> SwiftScript trace: -1, -3, 1, Infinity, -Infinity
//> SwiftScript trace: a12, 3a, true, 6, -5
//> SwiftScript trace: true, true, false, true
