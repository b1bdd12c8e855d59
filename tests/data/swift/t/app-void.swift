app (void v) touch(string name) { "touch" name; }
touch("x") => trace("done");
//> trace: done
