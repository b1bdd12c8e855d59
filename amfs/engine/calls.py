"""Dispatch of Python function calls: which worker gets which call, how many it gets ahead, which ones are lost with a worker. Pure.

A worker is a process that runs as a task of the session and executes the calls that it is sent one by one, in order. The machine starts
workers when there are calls for them, up to ``slots``, and stops those that have nothing to do, since a worker holds a slot that a task
could use. A worker is sent as many calls ahead (its *window*) as it executes in ``target_s``, so that short calls travel in batches and
long ones one by one. Calls that wait behind a long one while another worker has nothing to do are asked back.

Must not know: what a call is, sockets, futures. Numbers of calls and workers are given by the shell and by this machine; neither is used
twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

# ── events ─────────────────────────────────────────────────────────────────────────────────────────


class CallsMade(NamedTuple):
    """New calls, in order."""

    calls: Sequence[int]


class WorkerJoined(NamedTuple):
    """A worker has connected and waits for calls. The same number again: the session runs its task anew, since its node was lost."""

    worker: int


class CallsDone(NamedTuple):
    """A worker has executed these, in the order in which it got them."""

    worker: int
    calls: Sequence[int]


class CallsReturned(NamedTuple):
    """A worker gives these back; it has not begun them. They are the last that it was sent."""

    worker: int
    calls: Sequence[int]


class WorkerLost(NamedTuple):
    """A worker's connection has ended; all that came on it has been told."""

    worker: int


class WorkerEnded(NamedTuple):
    """The task that is the worker has ended. ``why``: in words, for a person."""

    worker: int
    why: str


class IdleReleased(NamedTuple):
    """Somebody wants the slots: workers that have nothing to do are to stop now."""


class TimePassed(NamedTuple):
    """``next_timer`` is due."""


CallEvent = CallsMade | WorkerJoined | CallsDone | CallsReturned | WorkerLost | WorkerEnded | IdleReleased | TimePassed

# ── effects ────────────────────────────────────────────────────────────────────────────────────────


class StartWorker(NamedTuple):
    worker: int


class StopWorker(NamedTuple):
    """It has nothing to do and will get nothing more."""

    worker: int


class SendCalls(NamedTuple):
    worker: int
    calls: Sequence[int]


class AskBack(NamedTuple):
    """Have the worker give back what it has not begun."""

    worker: int


class FailCall(NamedTuple):
    """The worker died while it executed this call."""

    call: int
    worker: int


class GiveUp(NamedTuple):
    """Workers cannot be started. Everything that was not executed fails."""

    why: str


CallEffect = StartWorker | StopWorker | SendCalls | AskBack | FailCall | GiveUp


class CallLimits(NamedTuple):
    """Times in seconds."""

    target_s: float = 0.02  # of work that a worker has ahead
    window_max: int = 1000  # calls ahead
    ask_back_s: float = 0.05  # without a result, before calls are asked back
    idle_s: float = 10.0  # before a worker stops
    starts_failed_max: int = 3  # workers in a row that ended before they joined
    retries: int = 0  # of a call whose worker died


class _Worker:
    __slots__ = ("asked", "heard", "mean_s", "out", "window")

    def __init__(self, now: float) -> None:
        self.out: deque[int] = deque()  # sent and not answered, in order: it executes the first
        self.window = 1
        self.mean_s = -1.0  # of a call; -1: not known
        self.heard = now  # when the first of ``out`` became the first, or when it became idle
        self.asked = False  # it was asked to give back


class CallDispatch:
    """``handle`` takes an event, at time ``now`` in seconds, and returns effects. At most ``slots`` workers at a time."""

    def __init__(self, slots: int, limits: CallLimits | None = None) -> None:
        self.slots = slots
        self.limits = limits or CallLimits()
        self.queue: deque[int] = deque()
        self.workers: dict[int, _Worker] = {}  # connected
        self.coming: dict[int, bool] = {}  # their tasks were submitted, and they are not connected -> were they before?
        self.going: set[int] = set()  # told to stop, their tasks have not ended
        self.ended: dict[int, str] = {}  # connected still, but their tasks have ended
        self.tries: dict[int, int] = {}  # calls that lost a worker -> how often
        self.failed_starts = 0
        self.given_up = False
        self.now = 0.0
        self._last = 0  # number of a worker
        self._out: list[CallEffect] = []

    # ── the way in ─────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: CallEvent, now: float) -> list[CallEffect]:
        self.now = now
        if isinstance(event, CallsDone):
            self._on_done(event)
        elif isinstance(event, CallsMade):
            self.queue.extend(event.calls)
        elif isinstance(event, CallsReturned):
            self._on_returned(event)
        elif isinstance(event, WorkerJoined):
            self._on_joined(event.worker)
        elif isinstance(event, WorkerLost):
            self._on_lost(event.worker)
        elif isinstance(event, WorkerEnded):
            self._on_ended(event)
        elif isinstance(event, IdleReleased):
            self._stop_idle(0.0)
        else:
            self._stop_idle(self.limits.idle_s)
        if not self.given_up:
            self._send()
            self._ask_back()
            self._start()
        out, self._out = self._out, []
        return out

    def next_timer(self) -> float | None:
        """When to say TimePassed, if nothing else happens before."""
        due = [worker.heard + self.limits.idle_s for worker in self.workers.values() if not worker.out]
        if due and not self.queue:  # a worker is idle: another may give back calls
            due += [w.heard + self.limits.ask_back_s for w in self.workers.values() if len(w.out) > 1 and not w.asked]
        return min(due, default=None)

    @property
    def pending(self) -> int:
        """Calls that have not ended."""
        return len(self.queue) + sum(len(worker.out) for worker in self.workers.values())

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        known = [*self.queue, *(call for worker in self.workers.values() for call in worker.out)]
        assert len(known) == len(set(known)), "a call is in two places"
        assert not self.coming.keys() & self.workers.keys() and not self.coming.keys() & self.going
        assert self.ended.keys() <= self.workers.keys() | self.going
        assert len(self.workers) + len(self.coming) <= self.slots, "too many workers"
        if not self.given_up:
            assert not self.pending or self.workers or self.coming, "calls wait for nobody"
            idle = any(not worker.out and not worker.asked for worker in self.workers.values())
            assert not (self.queue and idle), "a call waits beside an idle worker"

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def _on_joined(self, number: int) -> None:
        if number in self.workers:  # its task runs anew, and the connection of the first one still seems to be there
            self._on_lost(number)
        if number not in self.coming:  # its task has ended meanwhile, or it was told to stop
            self._out.append(StopWorker(number))
            return
        del self.coming[number]
        self.workers[number] = _Worker(self.now)
        self.failed_starts = 0

    def _on_done(self, event: CallsDone) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or not event.calls:
            return
        for call in event.calls:
            first = worker.out.popleft()
            assert first == call, "a worker executes in order"
            if self.tries:
                self.tries.pop(call, None)
        each_s = (self.now - worker.heard) / len(event.calls)
        worker.mean_s = each_s if worker.mean_s < 0 else 0.7 * worker.mean_s + 0.3 * each_s
        worker.window = max(1, min(self.limits.window_max, int(self.limits.target_s / max(worker.mean_s, 1e-7))))
        worker.heard = self.now

    def _on_returned(self, event: CallsReturned) -> None:
        worker = self.workers.get(event.worker)
        if worker is None:
            return
        worker.asked = False
        worker.window = 1
        for call in reversed(event.calls):
            last = worker.out.pop()
            assert last == call, "a worker gives back from the end"
            self.queue.appendleft(call)

    def _on_lost(self, number: int) -> None:
        self.going.discard(number)
        worker = self.workers.pop(number, None)
        if worker is None:
            return
        if worker.out:
            first = worker.out.popleft()
            self.queue.extendleft(reversed(worker.out))
            tried = self.tries.get(first, 0)
            if tried < self.limits.retries and not self.given_up:
                self.tries[first] = tried + 1
                self.queue.appendleft(first)
            else:
                self.tries.pop(first, None)
                self._out.append(FailCall(first, number))
        if self.ended.pop(number, None) is None:
            self.coming[number] = True  # its task will end, or be run anew

    def _on_ended(self, event: WorkerEnded) -> None:
        number = event.worker
        if number in self.workers:
            self.ended[number] = event.why  # its last words are still on their way
        elif number in self.coming:
            self.failed_starts += not self.coming.pop(number)
            if self.failed_starts >= self.limits.starts_failed_max and not self.workers:
                self.given_up = True
                self.queue.clear()
                self._out.append(GiveUp(event.why))
        self.going.discard(number)

    # ── decisions ──────────────────────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        """Fill windows that are half empty; shares are even, so that few calls go to many workers."""
        if not self.queue:
            return
        hungry = [(len(w.out), number, w) for number, w in self.workers.items() if 2 * len(w.out) <= w.window - 1 and not w.asked]
        hungry.sort(key=lambda each: each[:2])
        left = len(hungry)
        for have, number, worker in hungry:
            count = min(worker.window - have, -(-len(self.queue) // left))
            left -= 1
            if count <= 0:
                break
            calls = [self.queue.popleft() for _ in range(count)]
            if not worker.out:
                worker.heard = self.now
            worker.out.extend(calls)
            self._out.append(SendCalls(number, calls))

    def _ask_back(self) -> None:
        if self.queue or all(worker.out for worker in self.workers.values()):
            return
        for number, worker in self.workers.items():
            if len(worker.out) > 1 and not worker.asked and self.now - worker.heard >= self.limits.ask_back_s:
                worker.asked = True
                self._out.append(AskBack(number))

    def _start(self) -> None:
        staff = len(self.workers) + len(self.coming)
        for _ in range(min(self.slots, self.pending) - staff):
            self._last += 1
            self.coming[self._last] = False
            self._out.append(StartWorker(self._last))

    def _stop_idle(self, idle_s: float) -> None:
        for number in [n for n, w in self.workers.items() if not w.out and self.now - w.heard >= idle_s]:
            del self.workers[number]
            if self.ended.pop(number, None) is None:
                self.going.add(number)
            self._out.append(StopWorker(number))
