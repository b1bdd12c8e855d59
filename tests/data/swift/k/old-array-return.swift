type f;
(f o[]) many(int n) { foreach i in [0:n-1] { o[i] = one(i); } }
(f o) one(int i) { app { echo i stdout=@filename(o); } }
f x[] <simple_mapper; prefix="many.", suffix=".out">;
x = many(3);
//= many.0002.out 2\n
