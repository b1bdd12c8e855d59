"""The command lines of the benchmarks: options and tables."""
