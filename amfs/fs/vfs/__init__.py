"""The file system as one pure machine per node: everything that concerns more than this node's own shard and parts."""
