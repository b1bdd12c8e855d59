"""The provisioner that starts a session from here. Owns nothing but the choice."""

from __future__ import annotations

import os

from amfs.errors import UsageError
from amfs.provision import systems
from amfs.provision.allocation import Allocation
from amfs.provision.local import LocalProcesses
from amfs.provision.mpi import MpiRanks, under_mpi
from amfs.provision.provisioner import Provisioner

LOCAL = "local"


def choose(nodes: int | None, on: str | None = None) -> Provisioner:
    """In a job of a batch system, all of its hosts; under an MPI launcher each rank is a node; else ``nodes`` processes are started here.

    ``on`` names a system, or "local". Raises UsageError.
    """
    if on == LOCAL:
        return LocalProcesses(nodes or 1)
    system = systems.around() if on is None else systems.load(on)
    if system is not None:
        if not system.is_inside(os.environ):
            raise UsageError(f"--on {on}: this is no job of {system.name} (${system.inside} is not set); type it within one")
        return Allocation(system, nodes)
    return MpiRanks(nodes) if under_mpi() else LocalProcesses(nodes or 1)
