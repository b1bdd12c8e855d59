app (file o) mk() { sh "-c" "echo $0 > $0" @o; }
file a <"x/y/z.txt">; a = mk();
file b[] <simple_mapper; location="p/q", prefix="r/s", suffix=".t">; b[0] = mk();
//= x/y/z.txt x/y/z.txt\n
//= p/q/r/s0000.t p/q/r/s0000.t\n
