"""Executors of other libraries over ours: joblib, Dask and Parsl, each in a module that needs its library; the process beside Nextflow."""
