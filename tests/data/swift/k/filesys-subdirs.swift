file f[] <filesys_mapper; location="d", pattern="**/*.x">;
foreach x in f { tracef("%s\n", @x); }
//@ d/a/1.x x
//@ d/b/c/2.x x
//@ d/3.x x
//> d/3.x
//> d/a/1.x
//> d/b/c/2.x
