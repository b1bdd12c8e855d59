// Swift/K: a parameter sweep. A projectile for each angle and speed; which of them flies furthest below 900 m?
type file;

app (file o) fly(file program, float angle, float speed) { awk "-v" @strcat("angle=", angle) "-v" @strcat("speed=", speed) "-f" @program stdout=@o; }
app (file o) best(file results[]) { sh "-c" "cat \"$@\" | awk '$3 <= 900' | sort -k3,3n | tail -n 1" "best" @filenames(results) stdout=@o; }

file program <"programs/fly.awk">;
int n = toInt(arg("n", "8"));
file results[];
foreach step, i in [0:10] {
  foreach k in [1:n] {
    results[i * n + k] = fly(program, 20.0 + 5.0 * step, 50.0 + 10.0 * k);
  }
}
file answer <"best.txt"> = best(results);
string line = readData(answer);
tracef("angle, speed, distance: %s\n", line);
