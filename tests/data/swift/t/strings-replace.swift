trace(replace("aXbXc", "X", "-", 0), replace_all("aXbXc", "X", "-", 0), replace("aXbXc", "X", "-", 2));
//> trace: a-bXc,a-b-c,aXb-c
