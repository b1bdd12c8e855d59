type file;
app (file o) say(string s) { echo s stdout=@filename(o); }
file f <"said.txt"> = say("hello world");
//= said.txt hello world\n
