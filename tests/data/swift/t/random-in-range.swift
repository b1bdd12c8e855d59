float r = random();
int i = randint(5, 10);
assert(r >= 0.0 && r < 1.0, "random");
assert(i >= 5 && i < 10, "randint");
trace("ok");
//> trace: ok
