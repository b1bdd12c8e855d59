foreach i in [1:3] {
  switch (i) {
    case 1: trace("one");
    case 2: trace("two");
    default: trace("many");
  }
}
//> trace: one
//> trace: two
//> trace: many
