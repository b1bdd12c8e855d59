(int steps) collatz(int n) {
  if (n == 1) { steps = 0; }
  else {
    int next;
    if (n %% 2 == 0) { next = n %/ 2; } else { next = 3 * n + 1; }
    steps = 1 + collatz(next);
  }
}
trace(collatz(27));
//> trace: 111
