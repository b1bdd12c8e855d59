// places and priorities of calls
app (void v) h() { "true"; }
location L = locationFromRank(0); @location=L h() => trace("L"); 
void v = @location=locationFromRank(0) h(); wait (v) { trace("v"); }
@prio=5 h(); int p = 3; @prio=p h();
@soft_location=L h(); @hard_location=L h(); @location=location(0, HARD, RANK) h(); @location=location(0, SOFT, NODE) h(); @location=hostmapOneWorker(hostmapList()[0]) h();
trace(turbine_workers() > 0);
@dispatch=WORKER h();
//> trace: 1
//> trace: L
//> trace: v
