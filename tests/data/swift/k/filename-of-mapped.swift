//@ dir/name.txt x
type file;
file f <"dir/name.txt">;
trace(@f, @filename(f));
//> SwiftScript trace: dir/name.txt, dir/name.txt
