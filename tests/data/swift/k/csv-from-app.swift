type file;
type pair { file a; file b; }
app (file o) mk() { sh "-c" "echo a b; echo x.t y.t" stdout=@o; }
file list <"l.csv"> = mk();
pair ps[] <csv_mapper; file=list>;
app (file o) cat(file i, file j) { cat @i @j stdout=@o; }
foreach p, i in ps { file o <@strcat("o", i)> = cat(p.a, p.b); }
//@ x.t X
//@ y.t Y
//= o0 XY
