type file;
app (file e) complain() { sh "-c" "echo bad >&2" stderr=@e; }
file e <"err.txt"> = complain();
//= err.txt bad\n
