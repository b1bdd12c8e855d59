// variables that say which output they take
(int low, int high, string word) f(int n) { low = n; high = n * 2; word = "w"; }
(int only) g() { only = 5; }
int a; int b; string s; int c;
(s=word, a=high, b=low) = f(3);
(c=only) = g();
tracef("%i %i %s %i\n", a, b, s, c);
//> 6 3 w 5
