app (file o) get(file i) { cat @i stdout=@o; }
foreach n in ["not", "a", "b", "c", "d"] { 
  file f <n>;
  if (exists(@f)) { file o <strcat(n, ".o")> = get(f); }
}
//@ a x
//@ b x
//@ c x
//@ d x
//= b.o x
//= d.o x
