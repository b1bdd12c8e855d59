foreach i in [0:2] {
  switch (i) {
    case 0: trace("zero");
    case 1: trace("one");
    default: trace("more");
  }
}
//> SwiftScript trace: zero
//> SwiftScript trace: one
//> SwiftScript trace: more
