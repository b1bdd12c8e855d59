string parts[] = strsplit("a, b, c", ", ");
trace(parts[1], length(parts), strjoin(parts, "+"));
//> SwiftScript trace: b, 3, a+b+c
