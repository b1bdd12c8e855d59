file f[][] <ext; exec="./m.sh">;
file[string] k <ext; exec="./n.sh">;
trace(@f[0][1], @f[1][0], @k["a"]);
//@ m.sh #!/bin/sh\necho "[0][1] x"; echo "[1][0] y"\n
//@ n.sh #!/bin/sh\necho '["a"] z'\n
//> SwiftScript trace: x, y, z
