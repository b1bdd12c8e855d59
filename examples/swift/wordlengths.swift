// Swift/T: how many words have each length. Map for each part of a text, then a tree of reductions, two at a time.
import io; import files;

app (file o) part(file text, int i, int n) { "awk" "-v" ("i=" + i) "-v" ("n=" + n) "NR % n == i" text @stdout=o; }
app (file o) lengths(file text) { "awk" "{ for (i = 1; i <= NF; i++) count[length($i)]++ } END { for (l in count) print l, count[l] }" text @stdout=o; }
app (file o) add(file a, file b) { "sh" "-c" "cat $0 $1 | awk '{ count[$1] += $2 } END { for (l in count) print l, count[l] }' | sort -n" a b @stdout=o; }

(file o) reduce(file parts[], int first, int count) {
  if (count == 1) { o = parts[first]; }
  else {
    int half = count %/ 2;
    o = add(reduce(parts, first, half), reduce(parts, first + half, count - half));
  }
}

int n = 8;
file text = input("text.txt");
file counts[];
foreach i in [0:n - 1] { counts[i] = lengths(part(text, i, n)); }
file sum<"lengths.txt"> = reduce(counts, 0, n);
