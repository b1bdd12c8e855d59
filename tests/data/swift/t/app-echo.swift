app (file o) say(string s) { "echo" s @stdout=o; }
file f<"said.txt"> = say("hello world");
trace(read(f));
//> trace: hello world
//> 
//= said.txt hello world\n
