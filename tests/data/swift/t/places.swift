trace(turbine_workers() >= 1, size(hostmap_list()) >= 1);
location l = location(0, SOFT, NODE);
location m = randomWorker();
int r = randomWorkerRank();
assert(r >= 0 && r < turbine_workers(), "rank");
//> trace: 1,1
