type file;
type patient { string name; int age; };
type entry { file image; file header; };
entry es[] <csv_mapper; file="list.csv">;
app (file o) c(file a, file b) { cat @a @b stdout=@o; }
file o[] <simple_mapper; prefix="out", suffix=".txt">;
foreach e, i in es { o[i] = c(e.image, e.header); trace(i, @e.image, filename(e.header)); }
//@ list.csv image header\na.img a.hdr\nb.img b.hdr\n
//@ a.img ia\n
//@ a.hdr ha\n
//@ b.img ib\n
//@ b.hdr hb\n
//= out0000.txt ia\nha\n
//= out0001.txt ib\nhb\n
//> SwiftScript trace: 0, a.img, a.hdr
//> SwiftScript trace: 1, b.img, b.hdr
