// annotations before definitions, loops and calls
@pure (int o) f(int i) { o = i + 1; }
@deterministic @sideeffectfree (int o) g(int i) { o = i; }
@dispatch=WORKER @suppress=unused_output (int o, int p) h(int i) { o = i; p = 2; }
@inline (int o) k(int i) { o = i; }
@checkpoint=yes (int o) cc(int i) { o = i; }
@unroll=2 foreach i in [0:1] { trace("u", i); }
@splitdegree=4 @loopsplit=2 foreach i in [0:1] { trace("s", i); }
@async @unroll=4 foreach v, i in [5,6] { trace("a", v, i); }
@sync foreach i in [0:1] { trace("y", i); }
@leafdegree=8 foreach i in [0:1] { trace("l", i); }
@unroll=3 for (int i = 0; i < 2; i = i + 1) { trace("f", i); }
@prio=3 trace("prio");
int x = @prio=2 f(3);
int y = @prio=x f(x) + 1;
int z; z = @location=locationFromRank(0) g(4);
@prio=1+2 trace("p2");
@soft_location=randomWorker() trace("soft");
trace(x, y, z);
//> trace: prio
//> trace: p2
//> trace: soft
//> trace: 4,6,4
//> trace: u,0
//> trace: u,1
//> trace: s,0
//> trace: s,1
//> trace: a,5,0
//> trace: a,6,1
//> trace: y,0
//> trace: y,1
//> trace: l,0
//> trace: l,1
//> trace: f,0
//> trace: f,1
