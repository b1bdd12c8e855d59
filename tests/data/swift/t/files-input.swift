//@ in.txt 1\n# comment\n\n2 # two\n3\n
file f = input("in.txt");
string lines[] = file_lines(f);
trace(size(lines), lines[0], lines[1], filename(f));
//> trace: 3,1,2,in.txt
