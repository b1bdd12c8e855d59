type file;
app noop(string s) { echo s; }
app () noop2() { true; }
noop("x");
noop2();
