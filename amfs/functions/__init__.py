"""Python functions on the nodes of a session: the executor, its workers, and what goes between them."""
