app (file o) get() { echo "x" stdout=@o; }
file o <"gsiftp://host//o.txt"> = get();
//! URL
