type file;
file a <"a">; file b <"b">;
trace(a + b);
//! +
