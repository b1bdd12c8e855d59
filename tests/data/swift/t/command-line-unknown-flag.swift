//$ -loud -quiet
flags(boolean loud);
trace(loud);
//! the program does not know the argument -quiet; it accepts -loud
