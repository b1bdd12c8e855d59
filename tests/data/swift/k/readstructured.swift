type inner { int x; string s; };
type outer { inner i; int[] a; string[string] m; };
outer o = readStructured("o.txt");
trace(o.i.x, o.i.s, o.a[0], o.a[1]);
inner[] l = readStructured("l.txt");
trace(l[1].s);
//@ o.txt i.x = 3\ni.s = "a b"\na[0] = 7\na[1] = 8\nm["k"] = "v"\n
//@ l.txt [0].x = 1\n[0].s = a\n[1].x = 2\n[1].s = b\n
//> SwiftScript trace: 3, a b, 7, 8
//> SwiftScript trace: b
