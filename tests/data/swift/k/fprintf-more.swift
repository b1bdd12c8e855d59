foreach i in [1:20] { fprintf("log.txt", "line\n"); }
fprintf("dir/other.txt", "%s %i\n", "a", 1);
//= log.txt line\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\nline\n
//= dir/other.txt a 1\n
