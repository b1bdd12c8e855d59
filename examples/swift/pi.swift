// Swift/T: π by throwing darts. Each task has a seed of its own, so the answer is the same each time.
import io; import files; import string; import stats;

app (file o) throw(int seed, int n) {
  "awk" "-v" ("seed=" + seed) "-v" ("n=" + n) "BEGIN { srand(seed); for (i = 0; i < n; i++) if (rand()^2 + rand()^2 < 1) hits++; print hits }" @stdout=o;
}

int n = 20000;
float estimate[];
foreach seed in [1:16] {
  estimate[seed] = 4.0 * tofloat(trim(read(throw(seed, n)))) / n;
}
float mean; float deviation;
(mean, deviation) = stats(estimate);
printf("pi = %.4f, deviation %.4f", mean, deviation);
