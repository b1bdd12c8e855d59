// structs: constructors, nested, in arrays, as outputs
type person { string name; int age; }
type people { person head; person members[]; }
person p = person("A", 3); trace(p.name);
people q; q.head = p; q.members[0] = p; q.members[1] = person("B", 4);
foreach m in q.members { trace(m.name, m.age); }
(string o) nm(person x) { o = x.name; } trace(nm(p), nm(q.head), nm(q.members[1]));
(person o) older(person x) { o.name = x.name; o.age = x.age + 1; } trace(older(p).age, older(older(p)).age);
(person a, person b) twoP() { a = person("x", 1); b = a; } person r; person s; (r, s) = twoP(); trace(s.name);
person t; t = older(p); trace(t.age); person arr[] = [p, t]; trace(arr[1].age, size(arr));
person u; (u.name, u.age) = nameage(); (string n, int a) nameage() { n = "nm"; a = 5; } trace(u.name, u.age);
person byname[string]; byname["x"] = p; foreach v, k in byname { trace(k, v.age); }
person arr2[][]; arr2[0][0].name = "in"; arr2[0][0].age = 1; trace(arr2[0][0].name);
//> trace: A
//> trace: in
//> trace: A,A,B
//> trace: 4,5
//> trace: x
//> trace: 4
//> trace: nm,5
//> trace: 4,2
//> trace: A,3
//> trace: B,4
//> trace: x,3
