type file;
app (file o) e(string s) { echo s stdout=@o; }
file[string] f <simple_mapper; prefix="k-", suffix=".x">;
f["one"] = e("1"); f["two"] = e("2");
//= k-one.x 1\n
//= k-two.x 2\n
