string mode = arg("mode", "fast");
if (mode == "fast" && !(mode == "slow")) { trace("fast"); } else { trace("slow"); }
switch (length(strsplit(mode, ""))) { case 4: trace("four"); default: trace("other"); }
//> SwiftScript trace: fast
//> SwiftScript trace: four
