//$ -n=5 -name=x
trace(toInt(arg("n")) + 1, arg("name"), @arg("other", "default"));
//> SwiftScript trace: 6, x, default
