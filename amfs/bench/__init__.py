"""Measurements of amfs beside its peers and beside the limits of the machine."""
