type file;
global string greeting = "hello";
app (file o) e() { echo greeting stdout=@o; }
file o <"o.txt"> = e();
//= o.txt hello\n
