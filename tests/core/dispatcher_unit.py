"""A dispatcher with its workers and short ways to tell it things, for the stories that are told of it.

The node under test is 0. Its unit is nodes 0 to 3 (the stories say when it is smaller), node 8 belongs to another unit, node 9 keeps the
records of all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from parts import CLIENT, RUN, begin, spec
from recorder import Recorder

from amfs.config import DispatcherLimits
from amfs.engine.dispatcher import Dispatcher
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.partition import PartitionTable

SHARD, ELSEWHERE = 9, 8
LIMITS = DispatcherLimits()


class Unit(Recorder[Dispatcher]):
    """A dispatcher with its workers."""

    def __init__(self, workers: Sequence[int] = (0, 1, 2, 3), *, slots: int = 2, begun: bool = True, **of_run: Any) -> None:
        super().__init__(Dispatcher(0))
        self.slots = slots
        self.view(*workers)
        if begun:
            self.tell(CLIENT, begin(**of_run)).nothing_left()

    def view(self, *workers: int) -> Self:
        """From now on these are the nodes of the unit."""
        unit = dict.fromkeys(workers, self.slots)
        return self.feed(MembersChanged(PartitionTable([SHARD] * 4), {**unit, ELSEWHERE: 1, SHARD: 1}, set(), (), unit))

    def submit(self, *specs: m.TaskSpec) -> Self:
        return self.tell(CLIENT, m.Submit(RUN, specs))

    def assigned(self) -> dict[int, list[int]]:
        """worker -> tasks it was given since last asked, in order."""
        given: dict[int, list[int]] = {}
        for worker, message in self.take_all(m.Assign):
            given.setdefault(worker, []).extend(task.tid for task in message.tasks)
        return given

    def done(self, worker: int, *results: m.Result, parked: int = 0) -> Self:
        return self.tell(worker, m.Done(RUN, results, parked))

    def results(self) -> list[tuple[int, int]]:
        """(task, outcome) as the submitter was told since last asked."""
        return [(one.tid, one.outcome) for _, told in self.take_all(m.Results, CLIENT) for one in told.results]


def reduction(tid: int, inputs: str, arity: int = 2, **options: Any) -> m.TaskSpec:
    return spec(tid, inputs, f"out{tid}", argv=("cat", "{in}", "-o", "{out}"), reduce=arity, **options)


def plan_for(task: m.TaskSpec, holders: Sequence[int] = (1, 2)) -> m.ReducePlan:
    """All its inputs are there, dealt over the holders in runs of neighbours."""
    at = [m.FileAt(name, 10, (holders[i * len(holders) // len(task.inputs)],)) for i, name in enumerate(task.inputs)]
    return m.ReducePlan(RUN, task.tid, task.attempt, tuple(at))
