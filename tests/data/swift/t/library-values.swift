// library functions of one value
trace(ternary(1 > 2, "a", "b"), max(1, 2), min(1.5, 2), abs(-3), abs(-3.5), max_integer(1,2), min_float(1.0,2.0));
trace(floor(2.5), ceil(2.5), round(2.5), round(-2.5), sqrt(16.0), pow(2, 3), exp(0), log(1), log10(100), sin(0), cos(0.0), PI, E);
trace(toint("42"), parseInt("ff", base=16), parseInt("12"), string2int("7"), tofloat("2.5"), float2int(2.7), int2float(2), fromint(3), int2string(4), float2string(2.5), itof(1), repr(1), repr("a"), repr(1.5), repr(true));
trace(isint("12"), isint("a"), isint("1.5"), isint(""), isint("-3"));
trace(toUpper("abc"), toLower("ABC"), toupper("a"), tolower("B"), trim("  a b "), substring("hello", 1, 3), substring("hello", 3), find("hello", "l"), find("hello", "z"), find("hello","l",3,-1), replace("aaa", "a", "b"), replace_all("aaa", "a", "b"), replace("aXaX","X","Y",2), strlen("abc"), length("abc"));
trace(join(["a","b"], "-"), string_join(["a","b"], ","), strcat("a", 1, 2.5, true), contains("hello", "ell"), count("banana", "an"));
foreach s, i in split("a,b,,c", ",") { trace("split", i, s); }
foreach s, i in split("a b c") { trace("splitd", i, s); }
trace(sum([1,2,3]), sum([1.5,2]), sum_integer([1,2]), avg([1,2,4]), std([1,2,3,4]), max([3,1,2]), size(range(0,5)), size(range(0,10,2)));
trace(contains([1,2], 1), exists({"a":1}, "b"), contains({"a": 1}, "a"));
foreach k in keys_string({"b":1,"a":2}) { trace("k", k); } foreach k in keys_integer([5,6]) { trace("ki", k); }
//> trace: b,2,1.5,3,3.5,2,1.0
//> trace: 2.0,3.0,3.0,-3.0,4.0,8.0,1.0,0.0,2.0,0.0,1.0,3.141592653589793,2.718281828459045
//> trace: 42,255,12,7,2.5,2,2.0,3,4,2.5,1.0,1,a,1.5,1
//> trace: 1,0,0,0,1
//> trace: ABC,abc,A,b,a b,ell,lo,2,-1,3,baa,bbb,aXaY,3,3
//> trace: a-b,a,b,a12.51,1,2
//> trace: 6,3.5,3,2.3333333333333335,1.118033988749895,3,6,6
//> trace: 1,0,1
//> trace: split,0,a
//> trace: split,1,b
//> trace: split,2,
//> trace: split,3,c
//> trace: splitd,0,a
//> trace: splitd,1,b
//> trace: splitd,2,c
//> trace: k,a
//> trace: k,b
//> trace: ki,0
//> trace: ki,1
