type messagefile {}
(messagefile t) greeting(string s) {
  app { echo s stdout=@filename(t); }
}
messagefile outfile <"hello.txt">;
outfile = greeting("hi");
//= hello.txt hi\n
