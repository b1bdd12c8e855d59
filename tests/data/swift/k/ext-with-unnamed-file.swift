app (file o) mk() { echo "seed" stdout=@o; }
file v[] <ext; exec="./m.sh", seed=mk2>;
file mk2 = mk();
foreach x in v { tracef("%s\n", @x); }
//@ m.sh #!/bin/sh\necho "[0] $(cat $2)"\n
//> seed
