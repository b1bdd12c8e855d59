import sys;
string out; int code;
(out, code) = system(["echo", "a  b"]);
trace(out, code);
string o2; int c2;
(o2, c2) = system1("echo x; exit 3");
trace(o2, c2);
//> trace: a  b,0
//> trace: x,3
