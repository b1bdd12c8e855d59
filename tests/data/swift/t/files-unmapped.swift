file f = write("x");
string s = read(f);
trace(s, strlen(filename(f)) > 0);
//> trace: x,1
