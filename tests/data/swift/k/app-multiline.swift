type file;
app (file o)
f(string a,
  string b)
{
    echo
      a      // first
      b      # second
      "c;d"
      stdout=@o
      ;
}
file o <"o.txt">;
o = f("x",
      "y");
//= o.txt x y c;d\n
