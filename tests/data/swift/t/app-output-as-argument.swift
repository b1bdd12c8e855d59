app (file o) make(string s) { "sh" "-c" "echo $1 > $2" "sh" s o; }
file f<"sub/dir/made.txt"> = make("x");
trace(read(f));
//> trace: x
//> 
//= sub/dir/made.txt x\n
