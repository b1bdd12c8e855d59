//@ a 1
//@ b 2
type file;
file fs[] <FixedArrayMapper; files="a b">;
foreach f, i in fs { trace(i, @filename(f)); }
//> SwiftScript trace: 0, a
//> SwiftScript trace: 1, b
