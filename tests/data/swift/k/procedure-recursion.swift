(int r) fact(int n) {
  if (n == 0) { r = 1; } else { r = n * fact(n - 1); }
}
trace(fact(10));
//> SwiftScript trace: 3628800
