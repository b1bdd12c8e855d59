"""Measurements of amfs beside its peers and the limits of the machine, for developers: ``benchmarks NAME``, in a source tree."""
