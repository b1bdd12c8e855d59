"""Hosts for tests, made of namespaces, and a small real Slurm on them."""
