trace(strcat("a", 1, "b"), strstr("hello", "ll"), strstr("hello", "z"));
trace(regexp("abcdefghi", "c(def)g", "monkey"), strcut("abcdefghi", "abc(def)ghi"));
trace(pad(5, 42), toInt("7") + 1, toFloat("1.5"), toString(3) + "!");
//> SwiftScript trace: a1b, 2, -1
//> SwiftScript trace: abmonkeyhi, def
//> SwiftScript trace: 00042, 8, 1.5, 3!
