// as Java splits: nothing empty at the end, groups are not parts
trace(strjoin(strsplit("a,b,,", ","), "|"), strjoin(strsplit(",a", ","), "|"), strjoin(strsplit("abc", ""), "|"));
trace(strjoin(strsplit("a1b22c", "([0-9]+)"), "|"), length(strsplit("", ",")), length(strsplit("x", ",")));
//> SwiftScript trace: a|b, |a, a|b|c
//> SwiftScript trace: a|b|c, 1, 1
