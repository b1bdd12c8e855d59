type file;
file v[] <ext; exec="./m.sh">;
foreach e in v { trace(@e); }
//@ m.sh #!/bin/sh\necho bad >&2; exit 4\n
//! exit status 4
