app (file first) one() { "sh" "-c" "sleep 0.05; echo 1" @stdout=first; }
app (file second) two(file first) { "echo" "2" @stdout=second; }
file a = one();
file b<"b.txt"> = two(a);
//= b.txt 2\n
