// arrays in structs in arrays
type q { int v[]; } type s { q qs[]; } s x; x.qs[0].v[1] = 5; x.qs[0].v[2] = 6; x.qs[3].v[0] = 1; trace(size(x.qs), sum(x.qs[0].v)); foreach e, i in x.qs { trace(i, size(e.v)); }
//> trace: 2,11
//> trace: 0,2
//> trace: 3,1
