type messagefile {}
(messagefile t) greeting(string m[]) { app { echo m[0] m[1] m[2] stdout=@filename(t); } }
messagefile outfile <"g.out">;
outfile = greeting(["hello","from","array"]);
type details { string name; int n; }
(messagefile t) hi(details d) { app { echo "hello" d.name d.n stdout=@filename(t); } }
details p; p.name = "John"; p.n = 3;
messagefile o2 <"h.out"> = hi(p);
//= g.out hello from array\n
//= h.out hello John 3\n
