// What python_persist leaves at a location, a later call with that location finds; no other one does.
import location;
import python;
foreach rank in [0:5] {
  location place = locationFromRank(rank);
  string before = @location=place python_persist("mine = globals().get('mine', 0) + %i" % (rank * rank), "mine") =>
  string after = @location=place python_persist("mine = mine + 100", "mine");
  trace(rank, before, after);
}
//> trace: 0,0,100
//> trace: 1,1,101
//> trace: 2,4,104
//> trace: 3,9,109
//> trace: 4,16,116
//> trace: 5,25,125
