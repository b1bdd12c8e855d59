type image; type header;
type volume { image img; header hdr; };
type run { volume v[]; };
run r <simple_mapper; prefix="r.">;
app (file o) e(run x) { echo @filenames(x.v[*].img) stdout=@o; }
file o <"o.txt"> = e(r);
trace(strjoin(filenames(r.v[*].hdr), " "));
//@ r.v.0000_img a
//@ r.v.0000_hdr a
//@ r.v.0001_img a
//@ r.v.0001_hdr a
//= o.txt r.v.0000_img r.v.0001_img\n
//> SwiftScript trace: r.v.0000_hdr r.v.0001_hdr
