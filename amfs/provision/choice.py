"""The provisioner that starts a session from here. Owns nothing but the choice."""

from __future__ import annotations

from amfs.provision.local import LocalProcesses
from amfs.provision.mpi import MpiRanks, under_mpi
from amfs.provision.provisioner import Provisioner


def choose(nodes: int | None) -> Provisioner:
    """Under an MPI launcher each rank is a node; else ``nodes`` processes are started here."""
    return MpiRanks(nodes) if under_mpi() else LocalProcesses(nodes or 1)
