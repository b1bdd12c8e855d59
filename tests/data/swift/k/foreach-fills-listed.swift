// A loop over an array whose mapper lists its files may fill it; so may one over what a program lists.
//@ a.in one\n
//@ b.in two\n
//@ m.sh echo '[3] x.ext'; echo '[5] y.ext'\n
type file;
app (file o) copy(file i) { cp @i @o; }
app (file o) join(file a[]) { cat filenames(a[*]) stdout=@o; }
app (file o) say(string words[]) { echo words[*] stdout=@o; }
file ins[] <fixed_array_mapper; files="a.in b.in">;
file outs[] <array_mapper; files=["a.out", "sub/b.out"]>;
foreach o, j in outs {
    outs[j] = copy(ins[j]);
    trace(j, @o);
}
file all <"all.out"> = join(outs);
file listed[] <ext; exec="m.sh">;
foreach o, j in listed { listed[j] = copy(ins[j %/ 5]); }
file said <"said.out"> = say(["x", "y z"]);
//> SwiftScript trace: 0, a.out
//> SwiftScript trace: 1, sub/b.out
//= a.out one\n
//= sub/b.out two\n
//= all.out one\ntwo\n
//= x.ext one\n
//= y.ext two\n
//= said.out x y z\n
