//@ data/x0001.dat a
//@ data/x0002.dat b
type file;
file fs[] <SimpleMapper; location="data", prefix="x", suffix=".dat">;
foreach f, i in fs { trace(i, filename(f)); }
//> SwiftScript trace: 1, data/x0001.dat
//> SwiftScript trace: 2, data/x0002.dat
