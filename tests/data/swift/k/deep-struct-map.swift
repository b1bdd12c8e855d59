type a { file f; }
type b { a one; a two[]; }
b v <simple_mapper; prefix="t.", suffix=".z">;
app (file o) e(string s) { echo s stdout=@o; }
v.one.f = e("1"); v.two[0].f = e("2");
//= t.one_f.z 1\n
//= t.two.0000_f.z 2\n
