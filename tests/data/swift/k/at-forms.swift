type file;
type s { file x; file y[]; }
s v <simple_mapper; prefix="v">;
file a[] <fixed_array_mapper; files="p q">;
trace(@a[0], @v.x, @(a[1]), @filename(a[1]), strcat(@a[0], "z"), @strcat("w", @a[1]), length(filenames(a)));
string n[] = filenames(a);
foreach f in filenames(a) { tracef("%s\n", f); }
trace(n[1], dirname("/a/b/c.txt"), @dirname(a[0]));
//@ p x
//@ q x
//@ v x
//@ vx x
//> SwiftScript trace: p, vx, q, q, pz, wq, 2
//> p
//> q
//> SwiftScript trace: q, /a/b, .
