type file;
type pair { file a; file b; }
pair p <simple_mapper; prefix="x_", suffix=".txt">;
pair q <structured_regexp_mapper; source=p, match="x_(.*)\\.txt", transform="y_\\1.out">;
app (pair o) cp2(pair i) { sh "-c" "cat $0 > $2; cat $1 > $3" @i.a @i.b @o.a @o.b; }
q = cp2(p);
//@ x_a.txt A
//@ x_b.txt B
//= y_a.out A
//= y_b.out B
