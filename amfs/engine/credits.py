"""Credits (AME §3.4): how many unfinished tasks each dispatcher may have from one submitter, and which they are. Pure.

A dispatcher may have a window of tasks that are not parked, and one more for every task that it says is parked: tasks that wait for their
input must not keep out the tasks that make it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amfs.config import SubmitterLimits


class Credits:
    """``out`` maps each dispatcher to the tasks that it has."""

    def __init__(self, limits: SubmitterLimits) -> None:
        self.limits = limits
        self.out: dict[int, set[int]] = {}
        self._windows: dict[int, int] = {}
        self._parked: dict[int, int] = {}
        self._turn = 0

    def set_dispatchers(self, units: Mapping[int, Sequence[int]], slots: Mapping[int, int]) -> list[int]:
        """``units``: dispatcher -> its workers; ``slots``: node -> tasks at a time. Returns the tasks of those that are gone."""
        orphans: list[int] = []
        for dispatcher in [each for each in self.out if each not in units]:
            orphans += sorted(self.out.pop(dispatcher))
            self._parked.pop(dispatcher, None)
        for dispatcher, workers in units.items():
            self.out.setdefault(dispatcher, set())
            self._windows[dispatcher] = max(self.limits.window, self.limits.window_per_slot * sum([slots[worker] for worker in workers]))
        return orphans

    def report(self, dispatcher: int, parked: int) -> set[int] | None:
        """A dispatcher says how many of its tasks are parked; returns those that it has. None: it was given up, others have its tasks."""
        out = self.out.get(dispatcher)
        if out is not None:
            self._parked[dispatcher] = parked
        return out

    def next(self) -> int:
        """The dispatcher whose turn it is."""
        dispatchers = list(self.out)
        self._turn = (self._turn + 1) % len(dispatchers)
        return dispatchers[self._turn]

    def room(self, dispatcher: int) -> int:
        """How many tasks it is to be sent. None before a quarter of its window is free: single tasks would cost a message each."""
        out, window = len(self.out[dispatcher]), self._windows[dispatcher]
        room = window + min(self._parked.get(dispatcher, 0), self.limits.parked_max) - out
        return 0 if room <= 0 or (out > window // 2 and room < window // 4) else room

    @property
    def outstanding(self) -> int:
        """Tasks with dispatchers that are not parked."""
        return sum(map(len, self.out.values())) - sum(self._parked.values())
