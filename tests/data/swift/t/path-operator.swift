string dir = "data";
trace(dir / "f.txt");
//> trace: data/f.txt
