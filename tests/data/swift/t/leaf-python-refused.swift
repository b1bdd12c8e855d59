// Any other Tcl is refused where it is called.
(string out) both(string code) "turbine" "0.1" [ "set <<out>> [ string toupper [ turbine::python 1 1 <<code>> ] ]" ];
trace(both("1"));
//! both cannot be called here: it is a leaf function in Tcl
