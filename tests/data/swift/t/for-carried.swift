int last;
for (int i = 0, int s = 0; i <= 10; i = i + 1, s = s + i) {
  if (i == 10) { last = s; }
}
trace(last);
//> trace: 45
