type messagefile {}
(messagefile t) a(messagefile f, messagefile g) { app { cat @filename(f) @filename(g) stdout=@filename(t); } }
messagefile x <"x.in">; messagefile y <"y.in">;
messagefile z <"z.out"> = a(f=x, g=y);
//@ x.in 1
//@ y.in 2\n
//= z.out 12\n
