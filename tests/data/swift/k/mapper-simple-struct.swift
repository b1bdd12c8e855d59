type file;
type pair { file left; file right; }
app (file o) say(string s) { echo s stdout=@o; }
pair p <simple_mapper; prefix="p.", suffix=".txt">;
p.left = say("l");
p.right = say("r");
//= p.left.txt l\n
//= p.right.txt r\n
