trace(ternary(1 < 2, "yes", "no"));
//> trace: yes
