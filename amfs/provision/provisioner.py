"""One interface for starting and ending the nodes of a session. Local processes (``local``) and MPI ranks (``mpi``) implement it; others
(a batch system, a cloud) can stand beside them.

Must not know: how any of them does it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from amfs.net.records import Ready, SessionRecord


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A node by the options of ``amfs up`` and ``amfs node``."""

    slots: int = 0  # 0: the CPUs that the process may use; NO_SLOTS: it runs no tasks
    memory: int = 0  # bytes, 0: not accounted
    unit_size: int = 0
    expected: int = 1  # nodes that the session is to have, or to grow to
    tcp: str = ""  # ADDRESS or ADDRESS:PORT to listen on; "": local only
    store_dir: str = ""
    store_limit: int = 0  # bytes in memory per node, 0: as many as there is room for
    high_water: float = 0.0  # of that limit, above which files of runs are spilled; 0: the usual
    spill: str = ""  # directory on a disk for them; "": $TMPDIR or the like, "none": nothing is spilled
    spill_limit: int = 0  # bytes per node, 0: as many as there is room for
    replicas: int = 1  # nodes that have the content of each file of amfs:/, unless the file or its directory says otherwise
    drain_s: float = 30.0  # for which a node that is told to end hands over what it has


class Provisioner(Protocol):
    """Starts nodes, which then go on by themselves, and ends them."""

    speaks: bool  # does this process tell the person what has come of it? Of several that start a session together one does

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        """Start a session, and wait until all of its nodes are members. Raises AmfsError; then nothing is left running."""

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        """Start one more node of a running session, and wait until it is a member. Raises AmfsError; then it is not left running."""

    def end(self, session: SessionRecord, timeout_s: float) -> list[str]:
        """End all nodes, by force those that can be reached and do not end within ``timeout_s``; clean up. Repeatable. Returns what
        could not be ascertained, as lines for the person."""
