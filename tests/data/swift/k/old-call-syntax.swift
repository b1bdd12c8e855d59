string s = @strcat("a", @toString(1));
trace(s);
//> SwiftScript trace: a1
