"""Why a run took as long as it did: the chain of tasks that held it up, and what idle slots waited for. From the trace alone.

Owns the two computations. A task could start when the last of its inputs was made: the trace names the task that made it (``after``).
Must not know: how it is shown.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from amfs.runs.trace import Trace


class LastInput:
    """While a run goes on: which task made the input of another that came last. ``makers(tid)``: the tasks before it."""

    def __init__(self, makers: Callable[[int], Iterable[int]], ids: Callable[[int], str]) -> None:
        self._makers = makers
        self._ids = ids
        self._ends = array("q")

    def ended(self, tid: int, end_us: int) -> str:
        """Note the end of task ``tid`` (microseconds); returns the id of the task for which it had to wait, "" if there is none."""
        ends = self._ends
        if tid >= len(ends):
            ends.extend([0] * (tid + 1 - len(ends)))
        ends[tid] = end_us
        last = max((maker for maker in self._makers(tid) if maker < len(ends) and ends[maker]), key=ends.__getitem__, default=-1)
        return self._ids(last) if last >= 0 else ""


class Losses(NamedTuple):
    """Shares of all slots' time, in microseconds x slots. ``chain``: no task could start, for their inputs were not made or none was
    left. ``files``: tasks that could start waited, and had to fetch files. ``dispatch``: such tasks waited, and fetched none."""

    busy: float
    chain: float
    files: float
    dispatch: float

    @property
    def all(self) -> float:
        return sum(self)


def _places(trace: Trace) -> Mapping[str, int]:
    """Where each task stands in the trace: its last attempt that ended well."""
    return {task: at for at, task in enumerate(trace.task) if trace.ok[at]}


def critical_path(trace: Trace) -> list[int]:
    """The attempts, first to last, of which each waited for the one before it; the last is the one that ended last."""
    if not len(trace):
        return []
    places = _places(trace)
    at: int | None = max(range(len(trace)), key=trace.end.__getitem__)
    path: list[int] = []
    seen: set[int] = set()
    while at is not None and at not in seen:
        seen.add(at)
        path.append(at)
        at = places.get(trace.after[at])
    return path[::-1]


def waited_us(trace: Trace, at: int, places: Mapping[str, int] | None = None) -> int:
    """How long the attempt could have run and did not: since the last of its inputs was made, or since the run began."""
    before = (places if places is not None else _places(trace)).get(trace.after[at])
    return max(0, trace.start[at] - (trace.begin_us if before is None else trace.end[before]))


def losses(trace: Trace, slots: int) -> Losses:
    """The use of the time of ``slots`` slots between the first and the last moment of the trace."""
    places = _places(trace)
    changes: list[tuple[int, int, int, int]] = []  # moment, change of running, of ready tasks without files, of ready tasks with
    for at in range(len(trace)):
        ready = trace.start[at] - waited_us(trace, at, places)
        with_files = int(trace.fetched[at] > 0)
        changes.append((ready, 0, 1 - with_files, with_files))
        changes.append((trace.start[at], 1, with_files - 1, -with_files))
        changes.append((trace.end[at], -1, 0, 0))
    changes.sort()
    busy = chain = files = dispatch = 0.0
    moment, running, plain, fetching = trace.begin_us, 0, 0, 0
    for when, run, ready_plain, ready_fetching in changes:
        elapsed = when - moment
        if elapsed > 0:
            idle = max(0, slots - running)
            held = min(idle, plain + fetching)
            busy += elapsed * min(slots, running)
            chain += elapsed * (idle - held)
            if held:
                share = fetching / (plain + fetching)
                files += elapsed * held * share
                dispatch += elapsed * held * (1 - share)
            moment = when
        running, plain, fetching = running + run, plain + ready_plain, fetching + ready_fetching
    return Losses(busy, chain, files, dispatch)
