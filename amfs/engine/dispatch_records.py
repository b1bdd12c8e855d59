"""The records of a dispatcher: runs, unfinished tasks, planned reductions. Values; ``dispatcher`` decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from amfs.engine.task_placement import Placement
from amfs.engine.worker_health import WorkerHealth
from amfs.vocabulary import messages as m
from amfs.vocabulary.states import RecordState


class Record:
    """One unfinished task."""

    __slots__ = ("deaths", "excused", "failed_on", "failures", "giver", "spec", "state", "urgent", "worker")

    def __init__(self, spec: m.TaskSpec) -> None:
        self.spec = spec
        self.state = RecordState.QUEUED
        self.worker = -1
        self.giver = -1  # the worker that says it gave the task to ``worker``, until that one says that it has it
        self.failures = 0
        self.excused = 0  # failures that were not its own
        self.failed_on = -1  # the worker on which it last failed
        self.deaths: frozenset[int] = frozenset()  # nodes that were lost while they had it
        self.urgent = spec.attempt > 0 or spec.tid < 0  # had its turn before: others may wait for it with all the room taken


class Uprooted(NamedTuple):
    """The files of a partial task of a tree that was given up: inputs that the next tree reads again, partial results that only this task
    was to read, and outputs, of which some may have no reader."""

    again: tuple[str, ...]
    partial: tuple[str, ...]
    outputs: tuple[str, ...]
    unread: tuple[str, ...]


class Tree(NamedTuple):
    """A reduction that was planned: the task as it was submitted, and the partial tasks."""

    spec: m.TaskSpec
    parts: dict[int, m.TaskSpec]

    def given_up(self, ended: Collection[int], at_work: Collection[int]) -> Iterator[tuple[int, Uprooted]]:
        """The files of parts that have ended well, or may yet since a worker has them, by their fate if the tree is planned anew."""
        leaves = frozenset(self.spec.inputs)
        known = [self.parts[tid] for tid in (*ended, *at_work)]
        read = {name for part in known for name in part.inputs}
        for part in known:
            again = tuple([name for name in part.inputs if name in leaves])
            partial = tuple([name for name in part.inputs if name not in again])
            yield part.tid, Uprooted(again, partial, part.outputs, tuple([name for name in part.outputs if name not in read]))


class DispatchRun:
    """One run at this dispatcher."""

    __slots__ = (
        "client", "health", "info", "lossy", "out", "parked", "placement", "queue", "records", "results", "sub_tid", "told_parked", "trees",
        "uprooted",
    )  # fmt: skip

    def __init__(self, client: int, info: m.RunInfo, placement: Placement, sub_tid: int, health: WorkerHealth) -> None:
        self.client = client
        self.health = health
        self.info = info
        self.records: dict[int, Record] = {}
        self.queue: deque[Record] = deque()
        self.out: dict[int, int] = {}  # worker -> tasks of ours that it has and that use up its window: all but the urgent ones
        self.parked: dict[int, int] = {}  # worker -> those of them that wait for input
        self.results: list[m.Result] = []
        self.told_parked = 0
        self.lossy = False  # nodes were lost while it went on
        self.placement = placement
        self.sub_tid = sub_tid  # next id for the partial tasks of reductions
        self.trees: dict[int, Tree] = {}  # unfinished reductions that were planned
        self.uprooted: dict[int, Uprooted] = {}  # partial tasks of trees that were given up while a worker had these tasks


def next_attempt(spec: m.TaskSpec) -> m.TaskSpec:
    return m.TaskSpec(
        spec.tid, spec.body, spec.inputs, spec.shared, spec.outputs, spec.retentions, spec.options, spec.attempt + 1, spec.origin,
    )  # fmt: skip
