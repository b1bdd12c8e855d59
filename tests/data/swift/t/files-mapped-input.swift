//@ in.txt hello
file f<"in.txt">;
trace(read(f));
//> trace: hello
