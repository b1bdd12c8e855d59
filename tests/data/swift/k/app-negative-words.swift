app (file o) f(int x, float y) { echo x -1 x-1 x - 1 2*-3 -0.5 -y "-n" -1e3 [-1,2] (x -1) stdout=@o; }
app (file o) y() { echo -4 stdout=@o; }
file o <"o.txt"> = f(5, 2.0);
file p <"p.txt"> = y();
//= o.txt 5 -1 4 4 -6 -2.5 -n -1000.0 -1 2 4\n
