(int[] r) addone(int[] a) { foreach v, k in a { r[k] = v + 1; } }
int[] a; a[0] = 1;
int[] b = addone(a);
a[1] = b[0] * 10;
trace(b[1]);
//> SwiftScript trace: 21
