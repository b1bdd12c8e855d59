pragma worktypedef WORKER2;
trace(1);
//> trace: 1
