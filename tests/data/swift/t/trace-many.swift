trace(1, 2.5, "three", true);
trace();
//> trace: 1,2.5,three,1
//> trace: 
