type file;
file a <SingleFileMapper; file="a.txt">;
file b[] <FixedArrayMapper; files="b1.txt b2.txt">;
file c <RegexpMapper; source=a, match="a(.*)", transform="c\\1">;
app (file o) e(string s) { echo s stdout=@o; }
b[0] = e("0"); b[1] = e("1"); c = e(@a);
//@ a.txt x
//= b1.txt 0\n
//= b2.txt 1\n
//= c.txt a.txt\n
