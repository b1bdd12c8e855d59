type file;
app (file o) e(string s) { echo s stdout=@o; }
app (file o) cat(file[] i) { cat @filenames(i) stdout=@o; }
string[] outer = ["a", "b"];
file results[] <simple_mapper; location="res", prefix="sum_", suffix=".txt">;
foreach s, i in outer {
  file parts[] <simple_mapper; location="tmp", prefix=@strcat("part_", s, "_"), suffix=".txt">;
  foreach j in [0:2] { parts[j] = e(strcat(s, j)); }
  results[i] = cat(parts);
}
//= res/sum_0001.txt b0\nb1\nb2\n
//= tmp/part_a_0002.txt a2\n
