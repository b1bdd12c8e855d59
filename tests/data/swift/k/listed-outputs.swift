// an app names the files of an array that it makes, if the mapper lists them
//@ names.sh #!/bin/sh\necho '[0][1].image im1'\necho '[0][1].notes[0] no0'\necho '[0][1].notes[3] no3'\necho '[2][0].image im2'\n
type image; type note;
type record { image image; note notes[]; }
app (file out[]) split(string words) { sh "-c" "for f; do echo $f > $f; done" words @filenames(out); }
file o[] <fixed_array_mapper; files="first.txt,second.txt">;
o = split("ignored");
foreach v, i in o { tracef("%i %M\n", i, v); }
app (record r[][]) make() { sh "-c" "for f; do echo made > $f; done" "x" @filenames(r); }
record r[][] <ext; exec="names.sh">;
r = make();
tracef("%M %M\n", r[2][0].image, r[0][1].notes[3]);
//> 0 first.txt
//> 1 second.txt
//> im2 no3
//= first.txt first.txt\n
//= second.txt second.txt\n
//= im2 made\n
//= no0 made\n
