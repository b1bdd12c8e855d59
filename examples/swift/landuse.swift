# Swift/K: land use in satellite tiles, as in the tutorial programs for MODIS. Each tile is counted; the two with the most urban land are
# marked; all of the marked ones are put together.
type file;
type tile;

app (file o) getLandUse(file program, tile i) { awk "-f" @program @i stdout=@o; }
app (file o) rank(file counts[], string kind, int n) {
  sh "-c" "kind=$0; n=$1; shift; grep -H \"^$kind \" \"$@\" | sort -k2,2nr | head -n $n | sed 's/.landuse:.*//'" kind n @filenames(counts) stdout=@o;
}
app (tile o) mark(tile i) { sed "s/u/#/g" @i stdout=@o; }
app (file o) assemble(tile ts[]) { paste "-d" "|" @filenames(ts) stdout=@o; }

file program <"programs/landuse.awk">;
tile tiles[] <filesys_mapper; location="tiles", prefix="h", suffix=".tile">;
file counts[] <structured_regexp_mapper; source=tiles, match="tiles/(.*)\\.tile", transform="\\1.landuse">;
foreach t, i in tiles { counts[i] = getLandUse(program, t); }

file top <"top.txt"> = rank(counts, "u", 2);
string names[] = readData(top);
tile marked[];
foreach name, i in names {
  tile t <single_file_mapper; file=strcat("tiles/", name, ".tile")>;
  marked[i] = mark(t);
}
file picture <"picture.txt"> = assemble(marked);
foreach name, i in names { tracef("%i: %s\n", i, name); }
