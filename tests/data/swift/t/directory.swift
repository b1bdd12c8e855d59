//@ data/one.txt first
//@ data/two.txt second
import files;
app (file o) list(file where) { "ls" where @stdout=o; }
file where = directory("data");
trace(filename(where), read(list(where)));
//> trace: data,one.txt
//> two.txt
//> 
