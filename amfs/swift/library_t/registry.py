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
for _name in ("job_srun", "job_aprun", "turbine_run_output_blob"):
    T.refused[_name] = "there are no processes of MPI here; start the program by an app function"
for _name in ("blob_hdf_write", "blob_pack_rows_float"):
    T.refused[_name] = "write the blob with blob_write(…), and convert it by an app function"
for _name in ("EQPy_init_package", "EQPy_get", "EQPy_put", "EQPy_is_initialized", "EQPy_stop"):
    T.refused[_name] = "it is in EQPy.swift: put that file beside the script, or its directory into SWIFT_PATH, and import EQPy"
for _name in ("EQR_init_script", "EQR_get", "EQR_put", "EQR_is_initialized", "EQR_stop", "EQR_delete_R"):
    T.refused[_name] = "EQ/R is not there; run Rscript by an app function"
T.refused["init_updateable"] = "variables have one value for ever; add up by sum(…) of an array, or by a for loop"
T.refused["heap"] = "there is no process of the language whose memory could be told"
T.refused["srand"] = "random numbers have no seed here; give the seed to the program that needs it"
