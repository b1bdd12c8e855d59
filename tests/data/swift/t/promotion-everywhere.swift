// int becomes float in every position
float f = 3; float g = f * 2; int i = 3; float h = i; trace(f, g, h, f == i, f + i, i / 2, i * 1.0, 1 + 2.0 == 3);
float A[]; A[0] = 1; A[1] = i; trace(A[0], A[1]); (float o) id(float x) { o = x; } trace(id(i), id(1), id(i + 1));
float B[] = [i, 2, 3.5]; trace(B[0]); float s = sum([1.0, 2.0]); trace(s); (float p, int q) two() { p = 1; q = 2; } float x; int y; (x, y) = two(); trace(x, y);
float t = ternary(true, i, 2); trace(t); type st { float a; } st v; v.a = 3; st w = st(4); trace(v.a, w.a); float c = max(1, 2); trace(c);
if (f > 2) { trace("gt"); } for (float z = 0; z < 2; z = z + 1) { trace("z", z); }
//> trace: 3.0,6.0,3.0,1,6.0,1.5,3.0,1
//> trace: 1.0,3.0
//> trace: 3.0
//> trace: 3.0
//> trace: 3.0
//> trace: 3.0,4.0
//> trace: 2.0
//> trace: gt
//> trace: 3.0,1.0,4.0
//> trace: 1.0,2
//> trace: z,0.0
//> trace: z,1.0
