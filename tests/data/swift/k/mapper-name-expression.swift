type file;
app (file o) number(int i) { echo i stdout=@o; }
foreach i in [1:2] {
  file o <single_file_mapper; file=@strcat("n", i, ".txt")>;
  o = number(i);
}
//= n1.txt 1\n
//= n2.txt 2\n
