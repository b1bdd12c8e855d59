// two variables with one name
app (file o) e(string s) { "echo" s @stdout=o; }
file a<"x"> = e("1"); file b<"x"> = e("2");
//! two variables make the file 'x'
