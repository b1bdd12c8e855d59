type file;
type res { file out; int code; };
(res r) run(string s) { r.out = e(s); r.code = 3; }
app (file o) e(string s) { echo s stdout=@o; }
res x <simple_mapper; prefix="r_", suffix=".t">;
x = run("hi");
trace(x.code, @x.out);
//= r_out.t hi\n
//> SwiftScript trace: 3, r_out.t
