"""Facts about a run while it goes on and when it has ended: counts, bytes, failures. Values only.

The driver of a run makes them, ``display.progress`` shows them. Must not know how either works.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Where a run stands. Counts are tasks; ``failed`` includes upstream failures; ``eta_seconds`` None: not known."""

    total: int | None = None  # None while the list is open
    finished: int = 0
    failed: int = 0
    running: int = 0
    waiting: int = 0
    bytes_moved: int = 0
    rate: float = 0.0  # tasks per second, lately; 0 and no eta: the display measures it
    eta_seconds: float | None = None


class Stage(msgspec.Struct):
    """All tasks of one label. ``without_bytes``: bytes that these tasks read and wrote, which without amfs would all have gone through the
    shared file system (the first column of AME's Table 2)."""

    label: str
    ok: int = 0
    failed: int = 0
    upstream_failed: int = 0
    skipped: int = 0  # already done according to the journal
    not_run: int = 0
    busy_seconds: float = 0.0
    between_nodes_bytes: int = 0
    from_shared_bytes: int = 0
    to_shared_bytes: int = 0
    without_bytes: int = 0

    @property
    def tasks(self) -> int:
        return self.ok + self.failed + self.upstream_failed + self.skipped + self.not_run


class Failure(msgspec.Struct):
    """One task that failed by itself. ``where``: file and line of the task; ``what``: in words; ``stderr``: its last lines."""

    id: str
    what: str
    stderr: str = ""
    where: str = ""
    node: int = -1


class Summary(msgspec.Struct):
    """How a run ended. ``failures`` may be cut short; ``failures_omitted`` says by how many."""

    outcome: str  # "finished", "failed", "stopped" or "interrupted"
    exit_code: int
    wall_seconds: float
    stages: list[Stage] = []
    failures: list[Failure] = []
    failures_omitted: int = 0
    nodes: int = 1
    slots: int = 1
    engine_cpu_seconds: float = 0.0
    lost_nodes: list[int] = []  # nodes that were there and are so no more
    reruns: int = 0  # results beyond one for each task: of work that was lost with a node
    spilled_bytes: int = 0  # of files that memory could not hold
    left_processes: int = 0  # that tasks which ended well left running, and that were ended
    returned_bytes: int = 0  # of those, the ones brought back into memory
    notes: list[str] = []  # further sentences for the person: journal kept, trace written, files kept …

    def count(self, field: str) -> int:
        """Sum of one field of the stages."""
        return sum(getattr(stage, field) for stage in self.stages)


class Meter:
    """Rate and remaining time from counts: over the last ``window`` seconds, or since the start when younger."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window: float = 10.0) -> None:
        self._clock = clock
        self._window = window
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def measure(self, done: int, total: int | None) -> tuple[float, float | None]:
        """Tasks per second, and seconds until ``total`` (None if unknown) at that rate."""
        now = self._clock()
        marks = self._marks
        if now - marks[-1][0] >= self._window / 50:
            marks.append((now, done))
        while len(marks) > 1 and now - marks[0][0] > self._window:
            marks.popleft()
        elapsed = now - marks[0][0]
        rate = (done - marks[0][1]) / elapsed if elapsed > 0 else 0.0
        if total is None or rate <= 0:
            return rate, None
        return rate, max(0.0, (total - done) / rate)


def json_safe(value: Any) -> Any:
    """The value with strings that JSON can hold: bytes of names that are not UTF-8 are replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {json_safe(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    return value
