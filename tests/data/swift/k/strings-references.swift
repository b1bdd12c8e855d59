trace(regexp("picture.gif", "(.*)\\.gif", "\\1.jpg"));
//> SwiftScript trace: picture.jpg
