type file;
app (file outs[]) mk(int n) { sh "-c" "mkdir -p d; for i in $(seq $0); do echo $i > d/f$(printf %04d $i).txt; done" n; }
file outs[] <simple_mapper; location="d", prefix="f", suffix=".txt">;
outs = mk(3);
app (file o) cat(file fs[]) { cat @filenames(fs) stdout=@o; }
file all <"all.txt"> = cat(outs);
trace(length(outs));
//= all.txt 1\n2\n3\n
//> SwiftScript trace: 3
