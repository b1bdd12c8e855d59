if (1) { trace("yes"); }
if (0) { trace("no"); }
//> trace: yes
