"""A model of tasks that stage their own files: how long an ensemble takes on so many nodes, with one store for all. Pure.

Processors are shared evenly by whatever wants them. The store does what it is asked for at the same time at equal parts of its speed. Each
free slot takes the next task in the order of the list whose predecessors have ended.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.store_costs import Access


class Predicted(msgspec.Struct, frozen=True):
    """``measured_s``: median of the runs; 0: nothing was run. ``base``: the costs are from these runs. ``hosts``: each node is one."""

    application: str
    series: str
    nodes: int
    tasks: int
    predicted_s: float
    measured_s: float = 0.0
    base: bool = False
    hosts: bool = False

    @property
    def ratio(self) -> float:
        return self.predicted_s / self.measured_s if self.measured_s else 0.0


class StagedTask(NamedTuple):
    """Seconds of a processor before the inputs are fetched, of the program, and after the outputs are put; bytes of each file."""

    before_s: float
    compute_s: float
    after_s: float
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    predecessors: tuple[int, ...] = ()


class Machines(NamedTuple):
    """``cpus``: of one host. ``one_host``: all nodes share one, with ``others`` programs that always want a processor; else each node is a
    host of its own."""

    nodes: int
    slots: int
    cpus: float
    one_host: bool = False
    others: float = 0.0

    def share(self, busy: int) -> float:
        """The share of a processor that each of so many tasks has on one host."""
        return min(1.0, self.cpus / (busy + self.others)) if busy else 1.0


def makespan_s(tasks: Sequence[StagedTask], machines: Machines, get: Access, put: Access) -> float:
    return _Course(tasks, machines, get, put).run()


class _Shared:
    """Something that all jobs on it have equal shares of."""

    def __init__(self, share: Callable[[int], float]) -> None:
        self._share = share
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []  # done when so much has been given to each
        self._given = 0.0
        self._at = 0.0
        self.version = 0

    def add(self, now: float, number: int, amount: float, then: Callable[[], None]) -> None:
        self._advance(now)
        heapq.heappush(self._jobs, (self._given + amount, number, then))

    def next_at(self) -> float | None:
        """When the next job is done, if no other comes."""
        if not self._jobs:
            return None
        return self._at + max(0.0, self._jobs[0][0] - self._given) / self._share(len(self._jobs))

    def take(self, now: float) -> Callable[[], None]:
        """Remove the job that is done now. Returns its continuation."""
        self._advance(now)
        return heapq.heappop(self._jobs)[2]

    def _advance(self, now: float) -> None:
        if self._jobs:
            self._given += (now - self._at) * self._share(len(self._jobs))
        self._at = now
        self.version += 1


class _Course:
    def __init__(self, tasks: Sequence[StagedTask], machines: Machines, get: Access, put: Access) -> None:
        self._tasks = tasks
        self._get, self._put = get, put
        self._now = 0.0
        self._number = 0
        self._events: list[tuple[float, int, Callable[[], None] | None, _Shared | None, int]] = []
        hosts = 1 if machines.one_host else machines.nodes
        self._hosts = [_Shared(machines.share) for _ in range(hosts)]
        self._store = _Shared(lambda busy: 1.0 / busy)
        self._free = deque([node % hosts for _ in range(machines.slots) for node in range(machines.nodes)])
        self._left = [len(task.predecessors) for task in tasks]
        self._successors: dict[int, list[int]] = {}
        for number, task in enumerate(tasks):
            for before in task.predecessors:
                self._successors.setdefault(before, []).append(number)
        self._ready = [number for number, left in enumerate(self._left) if not left]  # a heap: sorted from the beginning

    def run(self) -> float:
        self._begin()
        while self._events:
            self._now, _, then, shared, version = heapq.heappop(self._events)
            if shared is not None:
                if version != shared.version:
                    continue
                then = shared.take(self._now)
                self._watch(shared)
            if then is not None:
                then()
        return self._now

    def _begin(self) -> None:
        while self._free and self._ready:
            self._start(heapq.heappop(self._ready), self._free.popleft())

    def _start(self, number: int, host: int) -> None:
        task, cpu = self._tasks[number], self._hosts[host]
        steps: deque[tuple[_Shared | None, float]] = deque([(cpu, task.before_s)])
        for size in task.inputs:
            steps += [(None, self._get.latency_s), (self._store, self._get.of_store_s(size))]
        steps.append((cpu, task.compute_s))
        for size in task.outputs:
            steps += [(None, self._put.latency_s), (self._store, self._put.of_store_s(size))]
        steps.append((cpu, task.after_s))

        def go_on() -> None:
            if not steps:
                self._ended(number, host)
                return
            where, amount = steps.popleft()
            self._number += 1
            if where is None:
                heapq.heappush(self._events, (self._now + amount, self._number, go_on, None, 0))
            else:
                where.add(self._now, self._number, amount, go_on)
                self._watch(where)

        go_on()

    def _watch(self, shared: _Shared) -> None:
        at = shared.next_at()
        if at is not None:
            self._number += 1
            heapq.heappush(self._events, (at, self._number, None, shared, shared.version))

    def _ended(self, number: int, host: int) -> None:
        self._free.append(host)
        for after in self._successors.get(number, ()):
            self._left[after] -= 1
            if not self._left[after]:
                heapq.heappush(self._ready, after)
        self._begin()
