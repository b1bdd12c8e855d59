// string functions with unusual arguments
// string functions
import string;
trace(substring("abcdef", 2, 2), find("banana", "na", 3, -1), count("aaa", "a"), replace("abab", "ab", "x", 0), replace_all("abab", "ab", "x", 0));
trace(trim("\n x \t"), toupper("x"), strlen(""), isint("0x10"), strcat());
trace(split("a,b", ",")[1], size(split("", ",")), size(split("a", ",")), join(split("a b c", " "), "+"));
trace(sprintf("%s", "q"), sprintf("%03d", 7), sprintf("%5.2f|%-6s|%x", 3.14159, "ab", 255), sprintf("nothing"));
//> trace: cd,4,3,xab,xx
//> trace: x,X,0,1,
//> trace: b,0,1,a+b+c
//> trace: q,007, 3.14|ab    |ff,nothing
