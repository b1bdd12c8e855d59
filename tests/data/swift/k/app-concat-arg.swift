type file;
app (file o) e(string d, file i) { echo "-o"+d  @strcat("--in=", @i) "x"+1 1+2 stdout=@o; }
file i <"in.txt">;
file o <"o.txt"> = e("dir", i);
//@ in.txt x
//= o.txt -odir --in=in.txt x1 3\n
