/* block
 // inside */
int x = 1; # hash "quote
int y = 2; // slash # both
string s = "// not # comment /* no */";
trace(x /* mid */ + y, s);
//> SwiftScript trace: 3, // not # comment /* no */
