// commas between words mean nothing
app (file o) n(string s) { "echo", "x", s, @stdout=o; }
app (file o) n2(string s) { "echo" "x" , s "y" @stdout=o }
printf("%s", trim(read(n("q")))); printf("%s", trim(read(n2("q"))));
//> x q y
//> x q
