"""Starting and ending the nodes of a session: local processes, MPI ranks, jobs, hosts by ssh, guests of Dask and Ray, nodes that join."""
