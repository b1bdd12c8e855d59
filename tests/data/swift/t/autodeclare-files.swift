// undeclared files
f = input("in.txt"); g = [f, f]; trace(size(g), filename(g[1])); s = read(f); printf(s);
//@ in.txt content\n
//> trace: 2,in.txt
//> content
//>
