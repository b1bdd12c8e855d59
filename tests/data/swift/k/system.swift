string lines[] = system("echo a; echo b");
trace(lines[0], lines[1]);
//> SwiftScript trace: a, b
