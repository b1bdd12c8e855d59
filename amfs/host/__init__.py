"""This machine: processes, their locks and signals, memory, mounts, shared storage, and the removal of what dead processes left."""
