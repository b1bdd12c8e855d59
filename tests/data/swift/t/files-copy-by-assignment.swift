file a<"a.txt"> = write("text");
file b<"b.txt">;
b = a;
trace(read(b));
//> trace: text
//= b.txt text
