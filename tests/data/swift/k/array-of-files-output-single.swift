type file;
app (file o, file[] parts) both(int n) { sh "-c" "for i in $(seq $0); do echo $i > part-$i; done; echo log" n stdout=@o; }
file l <"log.txt">; file[] p <filesys_mapper; prefix="part-">;
(l, p) = both(3);
int total[];
foreach f, i in p { int v = readData(f); total[i] = v; }
trace(total[0] + total[1] + total[2]);
//= log.txt log\n
//> SwiftScript trace: 6
