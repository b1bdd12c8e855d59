import unix;
//@ in.txt a b\n
file i = input("in.txt");
file c<"copy.txt"> = cp(i);
file s<"sed.txt"> = sed(i, "s/a/A/");
file e<"echo.txt"> = echo("said");
//= copy.txt a b\n
//= sed.txt A b\n
//= echo.txt said\n
