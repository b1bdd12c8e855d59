"""A client of a running session: its connection, and the files, keys and values that it reaches through one node."""
