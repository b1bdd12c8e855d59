// one element of such an array is named on the command line
app (file out[]) both(string a) { sh "-c" "echo $0 > $1; echo twice > $2" a @out[1] @out[0]; }
string names[] = ["x.txt", "y.txt"];
file p[] <array_mapper; files=names>;
p = both("once");
//= x.txt twice\n
//= y.txt once\n
