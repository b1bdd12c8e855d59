// Swift/T: a parameter sweep. A projectile for each angle and speed; which of them flies furthest below 900 m?
import io; import files; import string; import sys;

app (file o) fly(file program, float angle, float speed) { "awk" "-v" ("angle=" + angle) "-v" ("speed=" + speed) "-f" program @stdout=o; }
app (file o) best(file results[]) { "sh" "-c" "cat \"$@\" | awk '$3 <= 900' | sort -k3,3n | tail -n 1" "best" results @stdout=o; }

file program = input("programs/fly.awk");
int n = toint(argv("n", "8"));
file results[];
foreach angle, i in [20.0:70.0:5.0] {
  foreach k in [1:n] {
    results[i * n + k] = fly(program, angle, 50.0 + 10.0 * k);
  }
}
file answer<"best.txt"> = best(results);
printf("angle, speed, distance: %s", trim(read(answer)));
