type file;
app (file out[]) split() { sh "-c" "for i in 1 2 3; do echo $i > part.$i; done"; }
file parts[] <filesys_mapper; prefix="part.">;
parts = split();
foreach p in parts { trace(@p); }
//> SwiftScript trace: part.1
//> SwiftScript trace: part.2
//> SwiftScript trace: part.3
