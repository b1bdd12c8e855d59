app (file o) words(int A[], string s) { "printf" "%s|" 1 A s (2 + 3) "b c" @stdout=o; }
file f = words([2, 3], "x y");
trace(read(f));
//> trace: 1|2|3|x y|5|b c|
