app (file o, external e) first(int i) { sh "-c" "echo $1 > $0" @o i; }
app (external o) last(external a[]) { true; }
external es[];
file fs[] <simple_mapper; prefix="f", suffix=".t">;
foreach i in [0:2] { (fs[i], es[i]) = first(i); }
external z = last(es);
after(z);
after(external e) { trace("all done"); }
//= f0002.t 2\n
//> SwiftScript trace: all done
