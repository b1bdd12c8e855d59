type file;
app (file o) e(string s) { echo s stdout=@o; }
file a <"a.txt"> = e("a");
file b <"b.txt"> = a;
file c <"c.txt">; c = b;
file x[] <simple_mapper; prefix="x", suffix=".t">;
x[0] = a; x[1] = e("1");
file y[] <simple_mapper; prefix="y", suffix=".t">;
y = x;
file i <"i.txt">;
file j <"j.txt"> = i;
//@ i.txt i\n
//= b.txt a\n
//= c.txt a\n
//= x0000.t a\n
//= y0000.t a\n
//= y0001.t 1\n
//= j.txt i\n
