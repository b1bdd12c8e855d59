(int o) f(int i) "pkg" "0.1" [ "set <<o>> [ expr <<i>> + 1 ]" ];
trace(f(1));
//! Tcl
