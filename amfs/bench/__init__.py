"""Measuring amfs beside what it is compared with, and this machine for the simulator. See docs/benchmarks.md."""
