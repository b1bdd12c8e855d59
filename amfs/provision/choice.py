"""The provisioner that starts a session from here. Owns nothing but the choice."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from amfs.errors import UsageError
from amfs.provision import guests, systems
from amfs.provision.allocation import Allocation
from amfs.provision.commands import Commands
from amfs.provision.joining import Joining
from amfs.provision.local import LocalProcesses
from amfs.provision.mpi import MpiRanks, under_mpi
from amfs.provision.provisioner import Provisioner
from amfs.provision.submission import Submission, Wanted, parse_nodes

LOCAL = "local"
COMMAND = "command"


def choose(
    nodes: str | None, on: str | None = None, wanted: Wanted | None = None, tell: Callable[[str], None] = lambda text: None
) -> Provisioner:
    """In a job of a batch system, all of its hosts; under an MPI launcher each rank is a node; else ``nodes`` processes are started here.

    ``on`` names a system, a cluster that is there (``guests``), or "local". A system outside of whose jobs this is gets jobs as ``wanted``
    says. Raises UsageError.
    """
    least, most = parse_nodes(nodes) if nodes is not None else (None, None)
    wanted = wanted or Wanted()
    if on in guests.NAMES:
        _refuse(wanted, on, "--time", "--hosts", "words after --")
        return Joining(guests.way(on, wanted.at), least, most, wanted.wait_s, tell)
    if on == COMMAND:
        _refuse(wanted, on, "--hosts", "--at")
        return Submission(systems.of_words(wanted.more), msgspec.structs.replace(wanted, least=least or 1, most=most or 1, more=()), tell)
    system = None if on == LOCAL else systems.around() if on is None else systems.load(on)
    if system is not None and system.start:
        _refuse(wanted, system.name, "--time", "--at")
        return Joining(Commands(system, wanted.hosts, wanted.more), least, most, wanted.wait_s, tell)
    if system is not None and not system.is_inside(os.environ):
        if not system.can_submit:
            raise UsageError(f"--on {on}: this is no job of {system.name} (${system.inside} is not set); type it within one")
        _refuse(wanted, system.name, "--hosts", "--at")
        return Submission(system, msgspec.structs.replace(wanted, least=least or 1, most=most or 1), tell)
    if least != most:
        raise UsageError(f"--nodes {nodes}: from one number to another is for a batch system; name one with --on")
    if wanted != Wanted():
        raise UsageError("--time, --wait, --hosts, --at and words after -- are for nodes that --on SYSTEM starts elsewhere")
    if on == LOCAL:
        return LocalProcesses(least or 1)
    if system is not None:
        if not system.launch:
            raise UsageError(f"{system.name}: nothing says how to start nodes within a job; see 'launch' in the reference of templates")
        return Allocation(system, least)
    return MpiRanks(least) if under_mpi() else LocalProcesses(least or 1)


def _refuse(wanted: Wanted, on: str, *flags: str) -> None:
    """Raises UsageError if one of these was given."""
    given = {"--time": wanted.time_s is not None, "--hosts": wanted.hosts, "--at": wanted.at, "words after --": wanted.more}
    if wrong := [flag for flag in flags if given[flag]]:
        raise UsageError(f"--on {on} takes no {wrong[0]}")
