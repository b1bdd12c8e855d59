type file;
(file[] outs, file log) mk(int n) { app { sh "-c" "for i in $(seq $0); do echo $i > x$i.out; done; echo done" n stdout=@log; } }
file[] outs <filesys_mapper; prefix="x", suffix=".out">;
file log <"log.txt">;
(outs, log) = mk(2);
foreach f, i in outs { tracef("%i %M\n", i, f); }
//= log.txt done\n
//> 0 x1.out
//> 1 x2.out
