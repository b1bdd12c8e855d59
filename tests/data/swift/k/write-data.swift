type file;
int a[] = [1, 2, 3];
file f <"list.txt">;
f = writeData(a);
//= list.txt 1\n2\n3\n
