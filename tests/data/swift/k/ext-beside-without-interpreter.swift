type file;
file f[] <ext; exec="names.sh", n=2>;
trace(filename(f[0]), length(f));
//@ names.sh echo "[0] a.txt"; echo "[1] b.txt"\n
//@ a.txt 1
//@ b.txt 2
//> SwiftScript trace: a.txt, 2
