//@ map.sh #!/bin/sh\necho "[0] x.txt"\necho "[1] $2.txt"\n
//@ x.txt 1
//@ y.txt 2
type file;
file fs[] <ext; exec="./map.sh", name="y">;
foreach f, i in fs { trace(i, @f); }
//> SwiftScript trace: 0, x.txt
//> SwiftScript trace: 1, y.txt
