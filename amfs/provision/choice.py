"""The provisioner that starts a session from here. Owns nothing but the choice."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from amfs.errors import UsageError
from amfs.provision import systems
from amfs.provision.allocation import Allocation
from amfs.provision.local import LocalProcesses
from amfs.provision.mpi import MpiRanks, under_mpi
from amfs.provision.provisioner import Provisioner
from amfs.provision.submission import Submission, Wanted, parse_nodes

LOCAL = "local"


def choose(
    nodes: str | None, on: str | None = None, wanted: Wanted | None = None, tell: Callable[[str], None] = lambda text: None
) -> Provisioner:
    """In a job of a batch system, all of its hosts; under an MPI launcher each rank is a node; else ``nodes`` processes are started here.

    ``on`` names a system, or "local". A system outside of whose jobs this is gets jobs as ``wanted`` says. Raises UsageError.
    """
    least, most = parse_nodes(nodes) if nodes is not None else (None, None)
    system = None if on == LOCAL else systems.around() if on is None else systems.load(on)
    if system is not None and not system.is_inside(os.environ):
        if not system.can_submit:
            raise UsageError(f"--on {on}: this is no job of {system.name} (${system.inside} is not set); type it within one")
        return Submission(system, msgspec.structs.replace(wanted or Wanted(), least=least or 1, most=most or 1), tell)
    if least != most:
        raise UsageError(f"--nodes {nodes}: from one number to another is for a batch system; name one with --on")
    if wanted not in (None, Wanted()):
        raise UsageError("--time, --wait and words after -- are for jobs that --on SYSTEM submits")
    if on == LOCAL:
        return LocalProcesses(least or 1)
    if system is not None:
        if not system.launch:
            raise UsageError(f"{system.name}: nothing says how to start nodes within a job; see 'launch' in the reference of templates")
        return Allocation(system, least)
    return MpiRanks(least) if under_mpi() else LocalProcesses(least or 1)
