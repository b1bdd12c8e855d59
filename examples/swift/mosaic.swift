// Swift/T: images that overlap become one, as in Montage. Each has a background of its own: the differences in the overlaps tell how much
// to take from each.
import files;

app (file o) difference(file program, file a, file b) { "awk" "-f" program a b @stdout=o; }
app (file o) fit(file program, file differences[]) { "awk" "-f" program differences @stdout=o; }
app (file o) correct(file program, file corrections, file image, int i) { "awk" "-v" ("i=" + i) "-f" program corrections image @stdout=o; }
app (file o) add(file images[]) { "sort" "-n" "-u" images @stdout=o; }

file difference_awk = input("programs/difference.awk");
file fit_awk = input("programs/fit.awk");
file correct_awk = input("programs/correct.awk");

file images[] = glob("sky/*.img");
int last = size(images) - 1;
file differences[];
foreach i in [1:last] { differences[i] = difference(difference_awk, images[i - 1], images[i]); }
file corrections = fit(fit_awk, differences);
file corrected[];
foreach image, i in images { corrected[i] = correct(correct_awk, corrections, image, i); }
file mosaic<"mosaic.txt"> = add(corrected);
