"""Starting and ending the nodes of a session: local processes, MPI ranks, nodes that join."""
