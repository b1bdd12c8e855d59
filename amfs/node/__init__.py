"""The process of one node: a poll loop that drives the pure machines, and its launcher, copier, store and mounts."""
