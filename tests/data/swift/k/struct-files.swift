type image; type header;
type volume { image img; header hdr; };
(volume ov) reorient(volume iv, string d) { app { sh "-c" "cp $0 $2; cp $1 $3; echo $4 >> $3" @filename(iv.img) @filename(iv.hdr) @filename(ov.img) @filename(ov.hdr) d; } }
volume a <simple_mapper; prefix="vol.", suffix="", location="data">;
volume b <simple_mapper; prefix="out.", location="res">;
b = reorient(a, "x");
trace(@b.img, @a.hdr, filename(b.hdr));
//@ data/vol.img I\n
//@ data/vol.hdr H\n
//= res/out.img I\n
//= res/out.hdr H\nx\n
//> SwiftScript trace: res/out.img, data/vol.hdr, res/out.hdr
