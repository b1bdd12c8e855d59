type file;
app (file o, external done) a(string s) { sh "-c" "echo x > $0" @o; }
app (file o) b(external e, file i) { cat @i stdout=@o; }
file x <"x">; external d;
(x, d) = a("s");
file y <"y"> = b(d, x);
//= y x\n
