//$ -n=5 --name=x one two
int n = toint(argv("n"));
trace(n, argv("name"), argc(), argp(1), argp(2), argv("other", "default"), argv_contains("n"), argv_contains("m"));
//> trace: 5,x,2,one,two,default,1,0
