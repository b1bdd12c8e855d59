"""``import unix;``: ordinary programs as app functions."""

UNIX = """
app (file o) cp(file i) { "cp" i o; }
app (file o) cat(file i[]) { "cat" i @stdout=o; }
app (file o) cat(file i) { "cat" i @stdout=o; }
app (file o) sed(file i, string command) { "sed" command i @stdout=o; }
app (file o) sort(file i) { "sort" i @stdout=o; }
app (file o) awk(file program, file i) { "awk" "-f" program i @stdout=o; }
app (file o) touch() { "touch" o; }
app (file o) echo(string s) { "echo" s @stdout=o; }
app (file o) printenv(string name) { "printenv" name @stdout=o; }
app (file o) printenv() { "printenv" @stdout=o; }
app (void v) mkdir(string name) { "mkdir" "-p" name; }
app (void v) rm(string name) { "rm" "-f" name; }
app (void v) rm(string flags, string name) { "rm" flags name; }
app (void v) sleep(int seconds) { "sleep" seconds; }
app catp(file f[]) { "cat" f; }
app (void v) sleep_app(int|float seconds) { "sleep" seconds; }
"""
