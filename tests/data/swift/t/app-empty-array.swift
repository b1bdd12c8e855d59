app (file o) words(int A[]) { "printf" "<%s>" "a" A @stdout=o; }
file f = words([]);
trace(read(f));
//> trace: <a>
