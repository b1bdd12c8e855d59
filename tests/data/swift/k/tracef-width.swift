tracef("%5i|%-5s|%.2f|%05i|%8.3f|\n", 3, "ab", 1.239, 42, 3.14159);
tracef("%b %b\n", true, 1 == 2);
string s = sprintf("%s_%i", "f", 3); trace(s);
tracef("\\n stays? %s\n", "yes");
tracef("tab\tq\"uote\n");
//>     3|ab   |1.24|00042|   3.142|
//> true false
//> SwiftScript trace: f_3
//> \n stays? yes
//> tab	q"uote
