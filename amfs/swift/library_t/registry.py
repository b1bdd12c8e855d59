"""The library object that the modules of Swift/T's library fill; names that Swift/T knows and that do not exist here."""

from __future__ import annotations

from amfs.swift.builtins import Library

T = Library()

_TCL = "functions in Tcl cannot run here; write it as an app function, or with python()"
for _name in ("tcl", "tcl_1_0", "tcl_1_1", "tcl_0_1"):
    T.refused[_name] = _TCL
for _name in ("r", "R", "R_persist"):
    T.refused[_name] = "R is not embedded here; run Rscript by an app function"
for _name in ("julia", "Julia"):
    T.refused[_name] = "Julia is not embedded here; run julia by an app function"
for _name in ("jython", "groovy", "javascript", "scala", "clojure", "JVM", "java"):
    T.refused[_name] = "languages of the JVM are not embedded here; run java by an app function"
for _name in ("python_parallel", "python_parallel_persist", "launch", "launch_envs", "launch_turbine", "launch_multi"):
    T.refused[_name] = "functions on several processes with MPI cannot run here; start the program with mpiexec by an app function"
