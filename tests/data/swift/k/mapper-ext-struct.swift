type file;
type s { file left; file right[]; }
s v[] <ext; exec="./m.sh">;
foreach e, i in v { trace(i, @e.left, @e.right[0]); }
//@ m.sh #!/bin/sh\necho "[0].left a"\necho "[0].right[0] b"\necho "[1].left c"; echo "[1].right[0]  d"\n
//> SwiftScript trace: 0, a, b
//> SwiftScript trace: 1, c, d
