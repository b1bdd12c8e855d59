//@ list.csv left,right\na1,b1\na2,b2\n
//@ a1 x
//@ b1 x
//@ a2 x
//@ b2 x
type file;
type pair { file left; file right; }
pair ps[] <csv_mapper; file="list.csv">;
foreach p, i in ps { trace(i, @p.left, @p.right); }
//> SwiftScript trace: 0, a1, b1
//> SwiftScript trace: 1, a2, b2
