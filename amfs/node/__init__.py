"""The real shell: one poll loop per process drives the pure machines of a node."""
