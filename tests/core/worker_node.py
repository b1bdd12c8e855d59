"""A worker with short ways to tell it things, for the stories that are told of it.

The node under test is 0; the records of all files are kept by node 5, tasks come from the dispatcher on node 4, nodes 1 to 3 are
neighbours in the unit.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Self

from parts import CLIENT, RUN, begin, key, spec
from recorder import Recorder

from amfs.config import WorkerLimits
from amfs.engine.worker import Worker
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Launch, MembersChanged, OpenRun, TasksExited
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.records import Record, unpack_body, unpack_record

DISPATCHER, SHARD = 4, 5
NODES = frozenset(range(6))
BIG = WorkerLimits().forward_bytes_min


def members(table: PartitionTable, ring: Sequence[int], dead: Set[int] = frozenset()) -> MembersChanged:
    """There are the nodes of ``NODES`` but for the ``dead``; the worker's neighbours are ``ring``."""
    return MembersChanged(table, dict.fromkeys(NODES - dead, 2), dead, ring)


class Node(Recorder[Worker]):
    """A worker with short ways to tell it things."""

    def __init__(self, slots: int = 2, neighbours: Sequence[int] = (1, 2, 3), **of_run: Any) -> None:
        super().__init__(Worker(0, slots, "/store"))
        self.feed(members(PartitionTable([SHARD] * 8), neighbours, set()))
        if of_run.pop("begun", True):
            self.tell(CLIENT, begin(**of_run))
            self.effect(OpenRun)
            assert self.take(m.RunReady, CLIENT) == m.RunReady(RUN, 0)

    def assign(self, *specs: m.TaskSpec, by: int = DISPATCHER) -> Self:
        self.tell(by, m.Assign(RUN, specs, moved=any(by != one.origin for one in specs)))
        return self

    def located(self, name: str, *holders: int, size: int = 5) -> Self:
        self.tell(SHARD, m.Located(RUN, (m.FileAt(key(name), size, holders),)))
        return self

    def inline(self, name: str, holder: int, data: bytes = b"hello") -> Self:
        self.tell(holder, m.Content(RUN, (m.Blob(key(name), len(data), data),)))
        return self

    def launched(self) -> list[Record]:
        """The tasks that went to the launcher since last asked."""
        return [unpack_record(record) for launch in self.effects_of(Launch) for record in launch.records]

    def running(self) -> list[int]:
        """The ids of the tasks that went to the launcher since last asked."""
        return [tid_of(record) for record in self.launched()]

    def exits(self, tid: int, *sizes: int, outcome: int = 0, detail: str = "", took_us: int = 1000, changed: str = "") -> Self:
        """The launcher reports the end of a task with outputs of these sizes, which has ``changed`` these inputs."""
        serial = next(serial for serial, entry in self.machine.inflight.items() if entry.spec.tid == tid)
        code = 1 if outcome else 0
        made = tuple((size, 1000 + size) for size in sizes)
        given = self.machine.inflight[serial].given
        facts = (tuple(given.index(key(name)) for name in changed.split()), "", 0, "", 0) if changed else None
        self.feed(TasksExited([(serial, outcome, code, 1, 10**6, 10**6 + took_us, 900, 64, made, b"", b"", detail, facts)]))
        return self

    def done(self) -> list[m.Result]:
        """The results that the dispatcher was told since last asked."""
        return [one for _, done in self.take_all(m.Done, DISPATCHER) for one in done.results]


def tid_of(record: Record) -> int:
    return int(unpack_body(record.body)[0].removeprefix("/bin/t"))


def mine(tid: int, inputs: str = "", outputs: str = "", **more: Any) -> m.TaskSpec:
    return spec(tid, inputs, outputs, origin=DISPATCHER, **more)
