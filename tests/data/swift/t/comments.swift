// one line
/* several
   lines */
trace(1); // behind
//> trace: 1
