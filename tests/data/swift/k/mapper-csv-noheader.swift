type file;
type two { file a; file b; }
two t[] <csv_mapper; file="l.csv", header="false", skip="1", delim=";">;
trace(length(t), @t[1].b);
//@ l.csv comment\na;b\nc;d\n
//@ a x
//@ b x
//@ c x
//@ d x
//> SwiftScript trace: 2, d
