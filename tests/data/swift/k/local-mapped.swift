type file;
app (file o) e(int i) { echo i stdout=@o; }
foreach i in [1:3] {
  file f <single_file_mapper; file=strcat("out/f", i, ".txt")>;
  f = e(i);
  file g <strcat("g", i)> = e(i * 10);
  file h <@strcat("h", i, ".x")>;
  h = e(i * 100);
}
//= out/f2.txt 2\n
//= g3 30\n
//= h1.x 100\n
