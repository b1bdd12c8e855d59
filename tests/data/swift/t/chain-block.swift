int x = 1 =>
int y = 2 => {
  trace(x + y);
}
//> trace: 3
