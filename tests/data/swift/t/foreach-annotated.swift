@sync foreach i in [0:2] { trace(i); }
//> trace: 0
//> trace: 1
//> trace: 2
