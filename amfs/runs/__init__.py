"""One run of a workflow, from its tasks to its summary, and the Python API for it."""
