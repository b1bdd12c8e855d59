string s =
----
a "quoted" \\n line
----;
trace(find(s, "\\n", 0, -1) >= 0, contains(s, "quoted"));
//> trace: 1,1
