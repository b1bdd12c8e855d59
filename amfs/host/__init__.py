"""This machine: processes, memory, mounts, shared storage, directories in shared memory, and the removal of what dead processes left."""
