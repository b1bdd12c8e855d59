file f = input("absent.txt");
trace(read(f));
//! absent.txt
