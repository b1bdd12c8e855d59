// a function of the program goes before one of the library
(string o) trim(string s) { o = "mine" + s; } trace(trim("x"));
//> trace: minex
