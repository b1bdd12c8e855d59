//@ in.txt x
trace(exists("in.txt"), exists("absent.txt"));
//> SwiftScript trace: true, false
