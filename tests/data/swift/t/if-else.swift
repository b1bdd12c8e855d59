int x = 5;
if (x > 3) { trace("big"); } else { trace("small"); }
if (x == 1) { trace("one"); } else if (x == 5) { trace("five"); } else { trace("other"); }
//> trace: big
//> trace: five
