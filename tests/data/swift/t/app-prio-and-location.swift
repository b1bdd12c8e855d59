app (file o) f(int i) { "echo" i @stdout=o; }
file a<"a.txt"> = @prio=5 f(1);
location l = locationFromRank(0);
file b<"b.txt"> = @location=l f(2);
//= a.txt 1\n
//= b.txt 2\n
