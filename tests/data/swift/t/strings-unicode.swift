// characters beyond ASCII
string s = "héllo wörld ✓"; trace(s, strlen(s), toUpper(s)); printf("%s|%10s|", s, "é");
//> trace: héllo wörld ✓,13,HÉLLO WÖRLD ✓
//> héllo wörld ✓|         é|
