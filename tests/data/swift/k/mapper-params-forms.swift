type file;
string base = "d/x.txt";
file f[] <simple_mapper;
   location = @dirname(base), // where
   prefix = @strcat("a", "b"),
   suffix = "." + "t",
   padding = 2,
   noauto = "true"
>;
file g <"d" + "/" + "x.txt">;
trace(@f[3], @g, length(f));
//@ d/ab03.t x
//@ d/x.txt x
//> SwiftScript trace: d/ab03.t, d/x.txt, 1
