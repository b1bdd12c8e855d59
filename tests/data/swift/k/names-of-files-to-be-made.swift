// What reads a file by way of its name waits for the file, if a statement makes it.
type file;
type row { int n; file f; }
app (file o) table() { sh "-c" "sleep 0.05; printf 'n,f\n1,a.in\n2,b.in\n'" stdout=@o; }
app (file o) number() { sh "-c" "sleep 0.05; echo 17" stdout=@o; }
//@ a.in one\n
//@ b.in two\n
file t <"t.csv">;
t = table();
row rows[] <csv_mapper; file=@t>;
foreach r in rows { trace(r.n, @r.f); }
file v <"v.txt">;
v = number();
int i = readData(@filename(v));
trace(i, @extractInt(@v));
//> SwiftScript trace: 1, a.in
//> SwiftScript trace: 2, b.in
//> SwiftScript trace: 17, 17
