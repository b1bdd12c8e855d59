//@ d/x1.in 1
//@ d/x2.in 2
//@ d/y1.in 3
type file;
file fs[] <filesys_mapper; location="d", prefix="x", suffix=".in">;
foreach f in fs { trace(@f); }
//> SwiftScript trace: d/x1.in
//> SwiftScript trace: d/x2.in
