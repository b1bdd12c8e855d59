type messagefile;
type messagefile {}
type file;
type file;
messagefile m <"m.txt">;
trace(@m);
//> SwiftScript trace: m.txt
