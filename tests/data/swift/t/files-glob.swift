//@ b.dat 2
//@ a.dat 1
//@ c.txt 3
file F[] = glob("*.dat");
foreach f, i in F { trace(i, filename(f), read(f)); }
trace(size(glob("*.none")));
//> trace: 0,a.dat,1
//> trace: 1,b.dat,2
//> trace: 0
