type file;
file f[] <ext; exec="./m.sh", n="2", name="x y">;
foreach v, i in f { trace(i, @v); }
//@ m.sh #!/bin/sh\necho "[0] $1$2.txt"\necho "[1] $4.txt"\n
//> SwiftScript trace: 0, -n2.txt
//> SwiftScript trace: 1, x y.txt
