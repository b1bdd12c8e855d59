type file;
(file o, file e) both(string s) {
  app { sh "-c" @strcat("echo ", s, "; echo err >&2") stdout=@filename(o) stderr=@filename(e); }
}
file o <"o.txt">;
file e <"e.txt">;
(o, e) = both("out");
//= o.txt out\n
//= e.txt err\n
