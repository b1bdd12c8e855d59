type s { int a; float[] b; }
app (file o) mk() { sh "-c" "echo a = 3; echo 'b[0] = 1.5'; echo 'b[1]=2'" stdout=@o; }
s v = readStructured(mk());
trace(v.a, v.b[1], length(v.b));
//> SwiftScript trace: 3, 2.0, 2
