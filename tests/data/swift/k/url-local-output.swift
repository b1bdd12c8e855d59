type file;
app (file o) hello() { echo "hi" stdout=@o; }
file o <"file://localhost/o.txt"> = hello();
//= o.txt hi\n
