app (file o) bad() { "sh" "-c" "echo broken >&2; exit 3" @stdout=o; }
file f = bad();
trace(read(f));
//! bad
