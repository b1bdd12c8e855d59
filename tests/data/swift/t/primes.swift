(boolean p) prime(int n) {
  int D[];
  foreach d in [2:n - 1] { if (n %% d == 0) { D[d] = 1; } }
  p = size(D) == 0;
}
foreach n in [2:20] { if (prime(n)) { trace(n); } }
//> trace: 2
//> trace: 3
//> trace: 5
//> trace: 7
//> trace: 11
//> trace: 13
//> trace: 17
//> trace: 19
