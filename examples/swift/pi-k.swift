// Swift/K: π by throwing darts. Each task has a seed of its own, so the answer is the same each time.
type file;

app (file o) throw(int seed, int n) {
  awk "-v" @strcat("seed=", seed) "-v" @strcat("n=", n)
    "BEGIN { srand(seed); for (i = 0; i < n; i++) if (rand()^2 + rand()^2 < 1) hits++; print hits }" stdout=@o;
}
app (file o) mean(file estimates) { awk "{ s += $1 } END { print s / NR }" @estimates stdout=@o; }

int n = 20000;
float estimates[];
foreach seed in [1:16] {
  int hits = readData(throw(seed, n));
  estimates[seed] = 4.0 * hits / n;
}
file all <"estimates.txt"> = writeData(estimates);
float pi = readData(mean(all));
tracef("pi = %f\n", pi);
