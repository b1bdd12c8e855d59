"""Executors of other libraries over ours: joblib, Dask and Parsl, each in a module of its own that needs that library; the process beside
Nextflow, which needs none."""
