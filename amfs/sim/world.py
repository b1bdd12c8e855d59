"""The virtual world: a clock, an event queue, processes, a network between them, shared storage. Nothing here is real.

The world decides nothing that the machines decide: it delivers, delays, loses and kills. One seed gives one history: ``digest`` is a hash
over every event in order, and two runs of the same seed must agree on it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from amfs._native import xxh64
from amfs.sim.settings import NEVER, Costs, Faults, Storage


class OutOfEvents(AssertionError):
    """The event budget is used up: something feeds on itself."""


class Stuck(AssertionError):
    """Nothing more will ever happen, or not in the time allowed, and the work is not done."""


class Process(Protocol):
    """A process of this world: things arrive at it while it lives."""

    alive: bool
    transport: Any  # its own kind of process.Transport

    @property
    def listens(self) -> bool: ...

    def arrive(self, item: tuple[Any, ...]) -> None: ...


class World:
    """Clock, events and everything that processes share."""

    def __init__(
        self,
        seed: int = 0,
        *,
        costs: Costs | None = None,
        storage: Storage | None = None,
        faults: Faults | None = None,
        event_budget: int = 0,
        watched: bool = True,
    ) -> None:
        """``watched``: check invariants after every event and keep the digest; off for large simulations. ``event_budget`` 0: none."""
        self.now = 0.0
        self.costs = costs or Costs()
        self.storage = storage or Storage()
        self.faults = faults or Faults()
        self.rng = random.Random(seed ^ 0x5EED)
        self.event_budget = event_budget
        self.watched = watched
        self.events = 0
        self.digest = 0
        self.processes: dict[int, Process] = {}
        self.story: deque[tuple[float, object, str, object]] = deque(maxlen=400)
        self.tell: Callable[[str], None] | None = None  # every event in words, for people who replay a seed
        self.hear: Callable[[float, object, str, object], None] | None = None  # the same in parts: when, who, kind, what
        self.shared: dict[str, int] = {}  # absolute path on shared storage -> bytes
        self.names: dict[str, None] = {}  # paths in the session's file system that have a file
        self.stamps: dict[str, int] = {}  # the same -> which making of it that is
        self._stamp = 0
        self.shared_free_at = 0.0
        self.bytes_from_shared = 0
        self.bytes_to_shared = 0
        self.cut: Callable[[int, int], bool] | None = None  # whether nothing gets from one process to another just now
        self.blocked: dict[tuple[int, int], float] = {}  # path -> clogged until
        self.packets = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0

    # ── time ───────────────────────────────────────────────────────────────────────────────────────

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Have ``call(*args)`` happen at ``when``; never, if that is infinite."""
        if when == NEVER:
            return
        self._seq += 1
        heapq.heappush(self._heap, (when, self._seq, call, args))

    def run(self, until: Callable[[], bool], latest: float) -> None:
        """Let things happen until ``until()`` holds. Raises Stuck if the queue runs dry or ``latest`` is passed first, and OutOfEvents."""
        heap = self._heap
        pop = heapq.heappop
        while not until():
            if not heap:
                raise Stuck(f"nothing more will happen after {self.now:.3f} s")
            when, _, call, args = pop(heap)
            if when > latest:
                raise Stuck(f"not done by {latest:.0f} s")
            self.now = when
            self.events += 1
            if self.event_budget and self.events > self.event_budget:
                raise OutOfEvents(f"more than {self.event_budget} events by {self.now:.3f} s")
            call(*args)

    def let_pass(self, seconds: float) -> None:
        """Let things happen for so long."""
        end = self.now + seconds
        heap = self._heap
        while heap and heap[0][0] <= end:
            when, _, call, args = heapq.heappop(heap)
            self.now = when
            self.events += 1
            if self.event_budget and self.events > self.event_budget:
                raise OutOfEvents(f"more than {self.event_budget} events by {self.now:.3f} s")
            call(*args)
        self.now = end

    # ── what is remembered ─────────────────────────────────────────────────────────────────────────

    def note(self, who: object, kind: str, what: object) -> None:
        """Something happened: into the story, the digest and, if somebody reads along, onto the screen."""
        if not self.watched:
            return
        text = f"{self.now:.6f} {who} {kind} {what!r}"
        self.digest = xxh64(text, self.digest)
        self.story.append((self.now, who, kind, what))
        if self.tell is not None:
            self.tell(text)
        if self.hear is not None:
            self.hear(self.now, who, kind, what)

    # ── the network ────────────────────────────────────────────────────────────────────────────────

    def reachable(self, a: int, b: int) -> bool:
        """Whether packets get from ``a`` to ``b`` at all just now."""
        if self.cut is not None and self.cut(a, b):
            return False
        process = self.processes.get(b)
        return process is not None and process.alive

    def carry(self, sender: int, to: int, frame: bytes, depart: float) -> None:
        """Put one packet on the faulty network."""
        faults, rng = self.faults, self.rng
        self.packets += 1
        copies = 1
        if faults.loss and rng.random() < faults.loss:
            copies = 0
        if faults.duplication and rng.random() < faults.duplication:
            copies += 1
        path = (sender, to)
        if faults.clog and rng.random() < faults.clog:
            self.blocked[path] = self.now + rng.uniform(0, faults.clog_s)
        for _ in range(copies):
            delay = self.costs.latency_s + len(frame) / self.costs.bandwidth_bytes_s
            if faults.jitter_s:
                delay += rng.expovariate(1 / faults.jitter_s)
            self.at(max(depart, self.blocked.get(path, 0.0)) + delay, self._arrive, sender, to, frame)

    def _arrive(self, sender: int, to: int, frame: bytes) -> None:
        if self.cut is not None and self.cut(sender, to):
            return
        process = self.processes.get(to)
        if process is not None and process.listens:
            process.arrive(("frame", sender, frame))

    # ── shared storage ─────────────────────────────────────────────────────────────────────────────

    def stamp(self) -> int:
        """A new one: it tells one making of a file from another, as its time of change does on a real file system."""
        self._stamp += 1
        return self._stamp

    def put_shared(self, path: str, size: int, stamp: int) -> None:
        """A file appears on shared storage, in place of what was there."""
        self.shared[path] = size
        self.stamps[path] = stamp

    def use_storage(self, size: int, *, write: bool) -> float:
        """When an access of ``size`` bytes that begins now will have ended; all accesses share one bandwidth."""
        begin = max(self.now, self.shared_free_at)
        self.shared_free_at = begin + self.storage.request_s + size / self.storage.bandwidth_bytes_s
        if write:
            self.bytes_to_shared += size
        else:
            self.bytes_from_shared += size
        return self.shared_free_at + self.storage.latency_s
