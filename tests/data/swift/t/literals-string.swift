trace("tab\tquote\"back\\");
string s = """
two
lines""";
trace(strlen(s) > 8);
//> trace: tab	quote"back\
//> trace: 1
