"""Starting and ending the nodes of a session: local processes, MPI ranks, hosts of a batch job, nodes that join."""
