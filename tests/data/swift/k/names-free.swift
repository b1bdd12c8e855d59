int main = 1; int wait = 2; string url = "u"; string location = "l"; int blob = 3; float float_x = 1.5; int size = 4; int bag = 5; int pragma = 6;
string filename = "f.txt"; int length = 3; string format = "%s"; int range = 2; int sum = 1; int case1 = 3; string arg = "x"; int PI2 = 1; boolean deep = true; int chunk = 7; int const = 8; int for = 9; int void = 1;
file input <"in.txt">; file output <"out.txt">;
app (file o) cat(file i) { cat @i stdout=@o; }
output = cat(input);
trace(main + wait + blob + size + bag + pragma, url, location, filename, length, arg, for);
//@ in.txt x
//= out.txt x
//> SwiftScript trace: 21, u, l, f.txt, 3, x, 9
