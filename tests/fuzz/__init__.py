"""A hunt for faults of the protocol with random simulated clusters: ``python -m fuzz --seeds A-B``, with tests/ on the path (make sim)."""
