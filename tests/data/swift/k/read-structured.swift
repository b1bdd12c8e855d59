//@ in.txt a = 1\nb.c = "text"\nd[0] = 1.5\nd[1] = 2.5\n
type inner { string c; }
type whole { int a; inner b; float d[]; }
whole w = readStructured("in.txt");
trace(w.a, w.b.c, w.d[1]);
//> SwiftScript trace: 1, text, 2.5
