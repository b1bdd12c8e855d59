trace("hello");
//> SwiftScript trace: hello
