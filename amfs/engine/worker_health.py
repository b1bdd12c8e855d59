"""Workers that fail what others can do, so-called black holes: a part of a dispatcher. Pure.

Owns, for one run, the judgement whether a failure may be its worker's fault, and whether a worker is out of service. Must not know:
records, queues, messages.
"""

from __future__ import annotations

from amfs.config import DispatcherLimits


class WorkerHealth:
    """Of the workers of one run at one dispatcher."""

    __slots__ = ("_limits", "blamed", "out", "streak", "succeeded")

    def __init__(self, limits: DispatcherLimits) -> None:
        self._limits = limits
        self.streak: dict[int, int] = {}  # worker -> failures since its last success
        self.succeeded: set[int] = set()  # workers on which a task has ended well
        self.blamed: dict[int, int] = {}  # worker -> tasks that failed there and ended well elsewhere, since its last success
        self.out: set[int] = set()  # out of service, to the end of the run

    def ended_well(self, worker: int) -> None:
        self.succeeded.add(worker)
        if worker in self.streak:
            del self.streak[worker]
            self.blamed.pop(worker, None)

    def failed(self, worker: int) -> None:
        self.streak[worker] = self.streak.get(worker, 0) + 1

    def in_doubt(self, worker: int) -> bool:
        """May its failures be its own, rather than those of the tasks?"""
        return worker in self.out or worker not in self.succeeded or self.streak.get(worker, 0) > self._limits.failures_in_row

    def blame(self, worker: int, workers: int) -> bool:
        """A task that failed there has ended well elsewhere. True: that is enough, and from now on the worker is out of service. Of
        ``workers`` one always stays in service."""
        if worker in self.out or worker not in self.streak:
            return False
        self.blamed[worker] = self.blamed.get(worker, 0) + 1
        if self.blamed[worker] < self._limits.blamed_max or len(self.out) + 1 >= workers:
            return False
        self.out.add(worker)
        return True

    def forget(self, alive: set[int], workers: set[int]) -> None:
        """Only these nodes are left, and ``workers`` of them are those of this dispatcher. If all of these are out of service, they are
        back: somebody must have the tasks."""
        self.out &= alive
        if workers <= self.out:
            self.out -= workers
            for worker in workers:
                self.blamed.pop(worker, None)
        self.succeeded &= alive
        for counts in (self.streak, self.blamed):
            for worker in counts.keys() - alive:
                del counts[worker]
