"""Placement policies of a dispatcher: which worker gets a task. Pure.

``Even`` deals round-robin (AME §3.4). ``DataAware`` sends a task to where the producers of its inputs were sent (AMFS Shell §2.3.2: to
the node that holds the file), else deals evenly. Pinned tasks do not come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from amfs.vocabulary.messages import TaskSpec


class Placement(Protocol):
    def choose(self, spec: TaskSpec, room: Mapping[int, int]) -> int:
        """A worker with room > 0, or -1: none has."""

    def placed(self, spec: TaskSpec, worker: int) -> None:
        """``spec`` went to ``worker``."""

    def forget(self, alive: set[int]) -> None:
        """Only ``alive`` nodes are left."""


class Even:
    """Round-robin over the workers that have room."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: TaskSpec, room: Mapping[int, int]) -> int:
        workers = list(room)
        for step in range(len(workers)):
            worker = workers[(self._next + step) % len(workers)]
            if room[worker] > 0:
                self._next = (self._next + step + 1) % len(workers)
                return worker
        return -1

    def placed(self, spec: TaskSpec, worker: int) -> None:
        pass

    def forget(self, alive: set[int]) -> None:
        self._next = 0


class DataAware(Even):
    """Follow the producers of the inputs, as far as this dispatcher placed them."""

    def __init__(self) -> None:
        super().__init__()
        self._where: dict[str, int] = {}

    def choose(self, spec: TaskSpec, room: Mapping[int, int]) -> int:
        if len(room) > 1 and spec.inputs:
            votes: dict[int, int] = {}
            for name in spec.inputs:
                worker = self._where.get(name, -1)
                if room.get(worker, 0) > 0:
                    votes[worker] = votes.get(worker, 0) + 1
            if votes:
                return max(votes, key=lambda worker: (votes[worker], -worker))
        return super().choose(spec, room)

    def placed(self, spec: TaskSpec, worker: int) -> None:
        for name in spec.outputs:
            self._where[name] = worker

    def forget(self, alive: set[int]) -> None:
        super().forget(alive)
        self._where = {name: worker for name, worker in self._where.items() if worker in alive}


def make_placement(data_aware: bool) -> Placement:
    """The policy of a run."""
    return DataAware() if data_aware else Even()
