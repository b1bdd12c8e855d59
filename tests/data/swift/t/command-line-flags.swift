// variables that -name=value fills, and parameters of main; flags is a name like others elsewhere
//$ -loud -scale=3 ann 2
flags(boolean loud : "louder", boolean silent, int scale, float step = 2, string end = "!");
(int o) flags(int x) { o = x * scale; }
main(string name, int count) {
  string arguments = "plain";
  trace(name, flags(count), loud, silent, step, end, arguments);
}
//> trace: ann,6,1,0,2.0,!,plain
