app (file o, file e) both() { "sh" "-c" "echo out; echo err >&2" @stdout=o @stderr=e; }
file o; file e;
(o, e) = both();
trace(read(o) + read(e));
//> trace: out
//> err
//> 
