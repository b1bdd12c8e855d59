app (file o) mk() { echo "seed" stdout=@o; }
file s <"seed.txt"> = mk();
file v[] <ext; exec="./m.sh", seed=s, n=2>;
foreach x in v { tracef("%s\n", @x); }
//@ m.sh #!/bin/sh\necho "[0] $(cat seed.txt)-$2"; echo "[1] $4"\n
//> seed-seed.txt
//> 2
