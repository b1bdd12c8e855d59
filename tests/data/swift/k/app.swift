type file;
app (file o) say(string s) { echo s stdout=@o; }
file f <"said.txt">;
f = say("hello");
//= said.txt hello\n
