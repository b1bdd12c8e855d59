file f <"n.txt">;
int n = @extractint(f);
int m = @extractInt(f);
trace(n + m);
//@ n.txt 21\n
//> SwiftScript trace: 42
