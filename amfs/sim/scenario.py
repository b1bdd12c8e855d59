"""A simulation as data: everything that is decided before it begins. A seed draws one (``sim.swarm``); a finding can be kept as one."""

from __future__ import annotations

import msgspec

from amfs.sim.settings import Faults, FileLoad, Limits
from amfs.sim.workload import BlindTask, Workload
from amfs.workflow.workflow import Task


class Settings(msgspec.Struct, frozen=True):
    """All that a seed decides beside the workflow and what happens to the processes."""

    seed: int  # of the network, the storage and the retries: drawn by the world as it goes on
    quiet: bool
    nodes: int
    slots: tuple[int, ...]
    unit_size: int
    data_aware: bool
    stage_shared: bool
    keep_all: bool
    fail_fast: bool
    limits: Limits
    faults: Faults


class SimTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task and how it behaves."""

    task: Task
    seconds: float
    fails: int = 0  # so many times before it succeeds; -1: always
    blind: BlindTask | None = None


class FaultEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that befalls a process, or the network, at a time or at an event.

    ``what``: crash, leave, drain, join, stall, cut, client dies, client stops. At ``at`` seconds; or, if ``on`` is given, so long after the
    ``count``-th event of that kind: a message that arrives (by the name of its type), or "launches".
    """

    what: str
    at: float = 0.0
    on: str = ""
    count: int = 1
    node: int = -1  # that is meant; -1 (only with ``on``): the one where the event happens
    seconds: float = 0.0  # how long a stall or a cut lasts, or a drain may take; after which time a node that died is back; 0: for good
    cut: str = ""  # "around": between the side and the rest, "out of": the same in one direction, "pair": between the two
    side: tuple[int, ...] = ()
    slots: int = 1  # of the node that joins


class Scenario(msgspec.Struct, frozen=True):
    """One simulation."""

    settings: Settings
    tasks: tuple[SimTask, ...]
    sizes: dict[str, int]  # file -> bytes
    fault_events: tuple[FaultEvent, ...] = ()
    first: int = -1  # a list that grows: so many tasks are known at the beginning; -1: a closed list
    files: FileLoad | None = None  # the load on the session's file system meanwhile; None: there is none
    session: bool = False  # tasks make files of the session (``sim.session_files``)
    appear: dict[str, float] = {}  # files in the session's file system that no task makes -> when they appear

    def workload(self) -> Workload:
        """The workflow, checked, and its behaviour, at its beginning."""
        workload = Workload([one.task for one in self.tasks], seconds=1.0)
        workload.sizes.update(self.sizes)
        workload.appear = self.appear
        if self.settings.faults.black_hole:
            workload.black_hole = self.settings.nodes - 1
        for tid, one in enumerate(self.tasks):
            workload.seconds[tid] = one.seconds
            if one.blind is not None:
                workload.blind[tid] = one.blind
            if one.fails < 0 or (workload.black_hole == one.task.node >= 0 and not one.task.node_soft):
                workload.broken[tid] = None
            elif one.fails:
                workload.flaky[tid] = one.fails
        if self.first >= 0 and workload.plan.order is None:
            workload.open(min(self.first, len(self.tasks)))
        return workload
