// Swift/T: sequences are searched in a genome, a part of them at a time, with NCBI's blastn.
import files;

app (file o) part(file queries, int i, int n) { "awk" "-v" ("i=" + i) "-v" ("n=" + n) "/^>/ { k++ } k % n == i" queries @stdout=o; }
app (file o) search(file part, file genome) {
  "blastn" "-query" part "-subject" genome "-outfmt" "6" "-evalue" "1e-20" "-max_hsps" "1" @stdout=o;
}
app (file o) merge(file parts[]) { "sort" parts @stdout=o; }

int n = 4;
file genome = input("genome.fa");
file queries = input("queries.fa");
file hits[];
foreach i in [0:n - 1] { hits[i] = search(part(queries, i, n), genome); }
file all<"hits.txt"> = merge(hits);
