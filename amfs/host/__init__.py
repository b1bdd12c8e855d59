"""This machine: processes and the locks of those that live, memory, mounts, shared storage, and the removal of what dead processes left."""
