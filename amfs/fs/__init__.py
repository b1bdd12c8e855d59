"""Files: the partition table and key paths (pure), the node's store (I/O)."""
