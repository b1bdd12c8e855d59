# a line
// another
/* and
 more */
trace("a"); # behind
//> SwiftScript trace: a
