(string o) kind(int x) { o = "int"; }
(string o) kind(string x) { o = "string"; }
(string o) kind(float x) { o = "float"; }
trace(kind(1), kind("a"), kind(1.5));
//> trace: int,string,float
