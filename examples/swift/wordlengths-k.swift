// Swift/K: how many words have each length. Map for each part of a text, then a tree of reductions, two at a time.
type file;

app (file o) part(file text, int i, int n) { awk "-v" @strcat("i=", i) "-v" @strcat("n=", n) "NR % n == i" @text stdout=@o; }
app (file o) lengths(file text) { awk "{ for (i = 1; i <= NF; i++) count[length($i)]++ } END { for (l in count) print l, count[l] }" @text stdout=@o; }
app (file o) add(file a, file b) { sh "-c" "cat $0 $1 | awk '{ count[$1] += $2 } END { for (l in count) print l, count[l] }' | sort -n" @a @b stdout=@o; }

int n = 8;
file text <"text.txt">;
file sums[];                       // a heap: the parts are the leaves, each node adds the two below it
foreach i in [0:n - 1] { sums[n + i] = lengths(part(text, i, n)); }
foreach i in [1:n - 1] { sums[i] = add(sums[2 * i], sums[2 * i + 1]); }
file sum <"lengths.txt"> = sums[1];
