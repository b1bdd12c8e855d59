trace(2 -1, [2 -1][0], 2 * -3, (3) -1);
int a[] = [1,2]; trace(a[2 -1]);
app (file o) f(int a[], string d) { echo a[1 -1] -2 d+"x" -1 stdout=@o; }
file o <"o.txt"> = f(a, "d");
//= o.txt 1 -2 dx -1\n
//> SwiftScript trace: 1, 1, -6, 2
//> SwiftScript trace: 2
