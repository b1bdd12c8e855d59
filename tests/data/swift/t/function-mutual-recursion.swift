(boolean r) even(int n) { if (n == 0) { r = true; } else { r = odd(n - 1); } }
(boolean r) odd(int n) { if (n == 0) { r = false; } else { r = even(n - 1); } }
trace(even(100), odd(7));
//> trace: 1,1
