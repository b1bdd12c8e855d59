type image {}; type header {};
type volume { image img; header hdr; }
type run { volume v[]; }
app (volume o) cp2(volume i) { sh "-c" "cat $0 > $2; cat $1 > $3" @i.img @i.hdr @o.img @o.hdr; }
(run or) all(run ir) { foreach iv, i in ir.v { or.v[i] = cp2(iv); } }
run a <simple_mapper; prefix="in.">;
run b <simple_mapper; prefix="out.", padding=2>;
b = all(a);
//@ in.v.0000_img I0\n
//@ in.v.0000_hdr H0\n
//@ in.v.0001_img I1\n
//@ in.v.0001_hdr H1\n
//= out.v.00_img I0\n
//= out.v.01_hdr H1\n
