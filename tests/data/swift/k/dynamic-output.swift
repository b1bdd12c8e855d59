type file;
app (file out[]) split() { sh "-c" "for i in 1 2 3; do echo $i > part.$i; done"; }
file parts[] <filesys_mapper; prefix="part.">;
parts = split();
foreach p in parts { trace(@p); }
//! the number of files is not known before
