"""This machine: processes, mounts, directories in shared memory, and the removal of what dead processes left."""
