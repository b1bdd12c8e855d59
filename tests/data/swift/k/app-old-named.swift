type messagefile {}
(messagefile t) greeting (string m="hi", string n="there") {
    app { echo m n stdout=@filename(t); }
}
messagefile a <single_file_mapper;file="a.out">;
a = greeting(n="you");
messagefile b <single_file_mapper;file=@strcat("b",".","out")>;
b = greeting("x", n="y");
//= a.out hi you\n
//= b.out x y\n
