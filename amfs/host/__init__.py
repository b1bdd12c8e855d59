"""This machine: processes, mounts, shared storage, directories in shared memory, and the removal of what dead processes left."""
