// A leaf function in Tcl that only calls Python runs. Each kind of workers has a process for each location, and what it knows stays there.
import io;
import location;
import sys;
pragma worktypedef keeper;

@dispatch=keeper
(string out) ask(string code, string value) "turbine" "0.1" [ "set <<out>> [ turbine::python 1 1 <<code>> <<value>> ]" ];

@dispatch=keeper
(void done) act(string code, string value="0") "turbine" "0.1" [ "turbine::python 1 1 <<code>> <<value>> " ];

(string out) once(string code, string value) "turbine" "0.1" [ "set <<out>> [ turbine::python 0 <<code>> <<value>> ]" ];

@dispatch=keeper
(string out) last(string code) "turbine" "0.1" [ "set <<out>> [ turbine::python 1 <<code>> ]" ];

foreach rank in [3:4] {
  location place = locationFromRank(rank);
  @location=place act("seen = [%i]" % rank) =>
  @location=place act("seen.append(seen[0] * 2)") =>
  string all = @location=place ask("pass", "str(seen)");
  printf("%i %s", rank, all);
}
act("own = 5") => trace(ask("", "own + 1"), once("x = 2", "x * 3"));
trace(last("import math\nx = math.floor(7.5)\nx + 1"));
trace(getenv("RESIDENT_WORK_RANKS"), getenv("KEEPER_RANKS"));
//> 3 [3, 6]
//> 4 [4, 8]
//> trace: 6,6
//> trace: 8
//> trace: 0,
