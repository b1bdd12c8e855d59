"""Real sessions under random disturbances: see docs/testing.md. ``make chaos N=20 SEED=1``."""
