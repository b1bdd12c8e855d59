// statagg as a struct and as three outputs, stat_combine
PartialStats p = statagg([1, 2, 3]); trace(p.n, p.mean, p.M2);
PartialStats q; (q.n, q.mean, q.M2) = statagg([4.0, 5.0]); trace(q.n, q.mean);
(int n, float m, float s) = stat_combine([p, q]); trace(n, m, s);
float mean; float sd; (mean, sd) = stats([1, 2, 3, 4]); trace(mean, sd);
//> trace: 3,2.0,2.0
//> trace: 2,4.5
//> trace: 5,3.0,1.4142135623730951
//> trace: 2.5,1.118033988749895
