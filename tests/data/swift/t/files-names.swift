file f<"dir/name.tar.gz"> = write("x");
trace(filename(f), dirname(f), basename(f), extension(f), rootname(f));
trace(dirname_string("a/b/c"), basename_string("a/b.c"), rootname_string("x.y"), extension_string("x.y"));
//> trace: dir/name.tar.gz,dir,name.tar.gz,.gz,dir/name.tar
//> trace: a/b,b.c,x,.y
