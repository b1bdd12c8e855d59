import files;
file f<"out.txt"> = write("hello\n");
trace(read(f));
//> trace: hello
//> 
//= out.txt hello\n
