//@ int.txt many\n
int i = readData("int.txt");
trace(i);
//! many
