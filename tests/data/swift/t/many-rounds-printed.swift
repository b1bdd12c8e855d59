// more than 4096 answers at once
int a[]; foreach i in [1:4097] { a[i] = length(getenv("HOME")); }
import sys; import string;
trace(size(a));
//> trace: 4097
