// functions read the variables of the program; an app's command line, too
import io; import files;
int x = 3; string program = "cat"; file a = input("a.txt"); int A[];
app (file o) copy() { program a @stdout=o; }
f() { trace(x, size(A)); y = A[1]; trace(y); }
y = 10;
f(); trace(y);
foreach i in [0:3] { A[i] = i; }
printf("%s", read(copy()));
//@ a.txt text
//> trace: 3,4
//> trace: 1
//> trace: 10
//> text
