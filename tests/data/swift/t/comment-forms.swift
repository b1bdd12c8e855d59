// comments in odd places
// line
/* block
 * // nested */ trace(1); /* a */ /**/ trace(/* in */ 2); //* odd
/* "str" */ trace("/* no */ // no");
trace("#no");
# 1 "x.swift"
//> trace: 1
//> trace: 2
//> trace: /* no */ // no
//> trace: #no
