// a struct as {field: value, …}: alone, in arrays, in structs, as an argument
type point { int x; float y; }
type line { string name; point from; point to; }
point p = {y: 2, x: 1 + 1};
tracef("%i %f\n", p.x, p.y);
point[] many = [{x: 1, y: 1.5}, {x: 2, y: 2.5}];
foreach one, i in many { tracef("%i: %i %f\n", i, one.x, one.y); }
line l = {name: "a", from: p, to: {x: 7, y: 8.0}};
tracef("%s %i %i\n", l.name, l.from.x, l.to.x);
(int o) sum(point q) { o = q.x + toInt(q.y); }
tracef("sum %i\n", sum({x: 3, y: 4.0}));
string x = "key";
string[string] keyed = {x: "value"};
tracef("%s\n", keyed["key"]);
//> 2 2.000000
//> 0: 1 1.500000
//> 1: 2 2.500000
//> a 2 7
//> sum 7
//> value
