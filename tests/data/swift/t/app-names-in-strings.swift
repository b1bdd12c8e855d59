// strings that name files where the user stands are inputs; an app without files runs there
app (file o) show(string name) { "cat" name @stdout=o; }
app (void v) leave(int i) { "sh" "-c" "echo left $0 > left.txt" i; }
app (void v) look() { "test" "-f" "left.txt"; }
trace(trim(read(show("data.txt"))));
trace(trim(read(show("./data.txt"))));
leave(3) => look() => trace(trim(read(show("left.txt"))));
file f<"made.txt"> = write("made") => trace(read(show("made.txt")));
//@ data.txt here
//= left.txt left 3\n
//> trace: here
//> trace: here
//> trace: left 3
//> trace: made
