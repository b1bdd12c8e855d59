"""Operations that take several steps, as generators, and the questions between nodes that they are made of. Pure.

A generator yields what it waits for (``Ask``, ``Work``, ``All``, ``Sleep``, ``Acquire``) and is sent the result, or an OSError is thrown
into it. What another node asks (``PeerRequest``) is answered by the methods ``s_...`` of the subclasses, which may be generators.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from amfs.engine import messages as m
from amfs.engine.events import FsWork, FsWorked, PeerDown, TimerFired
from amfs.engine.machine import Machine

ASK_S = 30.0  # an answer that has not come by then is EIO

Operation = Generator[Any, Any, Any]
Answer = Callable[[OSError | None, Any], None]


class Ask(NamedTuple):
    """Have ``node`` (this one, too) do ``op``."""

    node: int
    op: str
    args: tuple[Any, ...] = ()


class Work(NamedTuple):
    """Have the I/O of this node do ``what``: a method of ``node.file_backend``."""

    what: str
    args: tuple[Any, ...] = ()


class All(NamedTuple):
    """All of these at once; the result is a list of results, an OSError in place of one that failed."""

    calls: Sequence[Ask | Work]


class Sleep(NamedTuple):
    seconds: float


class Acquire(NamedTuple):
    """Wait until nobody else of this node holds ``key``; ``release`` must follow."""

    key: object


class _Asked(NamedTuple):
    node: int
    answer: Answer
    until: float


class _Running:
    __slots__ = ("answer", "operation")

    def __init__(self, operation: Operation, answer: Answer) -> None:
        self.operation = operation
        self.answer = answer


def failure(number: int) -> OSError:
    return OSError(number, errno.errorcode.get(number, f"error {number}"))


def _silent(error: OSError | None, value: Any) -> None:
    """For what nobody waits for."""


class Calls(Machine):
    """Runs operations. Knows who is alive; knows nothing of files."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.live: frozenset[int] = frozenset((node,))
        self._serial = 0
        self.asked = 0  # how many questions this node has asked others
        self._asked: dict[int, _Asked] = {}
        self._works: dict[int, Answer] = {}
        self._sleepers: dict[int, _Running] = {}
        self._held: dict[object, deque[_Running]] = {}  # key -> who waits for it
        self._ready: deque[tuple[_Running, OSError | None, Any]] = deque()
        self._stepping = False
        self._watching = False
        self.on_message = {m.PeerRequest: self._on_ask, m.PeerResponse: self._on_answer}
        self.on_event = {FsWorked: self._on_worked, PeerDown: self._on_peer_down, TimerFired: self._on_timer}

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def spawn(self, operation: Operation, answer: Answer = _silent) -> None:
        """Run it; ``answer`` gets the OSError that ended it, or its result."""
        self._resume(_Running(operation, answer), None, None)

    def _resume(self, running: _Running, error: OSError | None, value: Any) -> None:
        self._ready.append((running, error, value))
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._ready:
                self._step(*self._ready.popleft())
        finally:
            self._stepping = False

    def _step(self, running: _Running, error: OSError | None, value: Any) -> None:
        try:
            wanted = running.operation.throw(error) if error is not None else running.operation.send(value)
        except StopIteration as end:
            running.answer(None, end.value)
        except OSError as failed:
            running.answer(failed, None)
        except Exception as wrong:
            # What a client or peer sent does not fit the operation: its fault, and no reason for this node to end.
            self.log(f"an operation with impossible arguments: {type(wrong).__name__}: {wrong}", logging.WARNING)
            running.answer(failure(errno.EINVAL), None)
        else:
            self._want(running, wanted)

    def _want(self, running: _Running, wanted: Any) -> None:
        if isinstance(wanted, (Ask, Work)):
            self._call(wanted, lambda error, value: self._resume(running, error, value))
        elif isinstance(wanted, All):
            results: list[Any] = [None] * len(wanted.calls)
            left = len(results)
            if not left:
                self._resume(running, None, results)

            def got(index: int, error: OSError | None, value: Any) -> None:
                nonlocal left
                results[index] = value if error is None else error
                left -= 1
                if not left:
                    self._resume(running, None, results)

            for index, call in enumerate(wanted.calls):
                self._call(call, lambda error, value, index=index: got(index, error, value))  # type: ignore[misc]
        elif isinstance(wanted, Sleep):
            self._serial += 1
            self._sleepers[self._serial] = running
            self.set_timer(("sleep", self._serial), wanted.seconds)
        elif isinstance(wanted, Acquire):
            if wanted.key in self._held:
                self._held[wanted.key].append(running)
            else:
                self._held[wanted.key] = deque()
                self._resume(running, None, None)
        else:
            raise TypeError(f"an operation cannot wait for {wanted!r}")

    def release(self, key: object) -> None:
        """Give up what ``Acquire`` gave; the next one that waits has it."""
        waiting = self._held[key]
        if waiting:
            self._resume(waiting.popleft(), None, None)
        else:
            del self._held[key]

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────

    def _call(self, call: Ask | Work, answer: Answer) -> None:
        if isinstance(call, Work):
            self._serial += 1
            self._works[self._serial] = answer
            self.out.append(FsWork(self._serial, call.what, call.args))
        elif call.node == self.node:
            self._serve(self.node, call.op, call.args, answer)
        elif call.node not in self.live:
            answer(failure(errno.EHOSTDOWN), None)
        else:
            self._serial += 1
            self.asked += 1
            self._asked[self._serial] = _Asked(call.node, answer, self.now + ASK_S)
            self.send(call.node, m.PeerRequest(self._serial, call.op, call.args))
            if not self._watching:
                self._watching = True
                self.set_timer("asked", ASK_S / 10)

    def tell(self, call: Ask | Work) -> None:
        """Have it done without waiting for the end. What is told to a node is done before what it is asked later."""
        if isinstance(call, Work):
            self.out.append(FsWork(0, call.what, call.args))
        else:
            self._call(call, _silent)

    def _serve(self, peer: int, op: str, args: Sequence[Any], answer: Answer) -> None:
        method = getattr(self, f"s_{op}", None)
        if method is None:
            answer(failure(errno.EOPNOTSUPP), None)
            return
        try:
            result = method(peer, *args)
        except OSError as error:
            answer(error, None)
            return
        except Exception as wrong:
            self.log(f"node {peer} asks {op} with impossible arguments: {type(wrong).__name__}: {wrong}", logging.WARNING)
            answer(failure(errno.EINVAL), None)
            return
        if isinstance(result, Generator):
            self.spawn(result, answer)
        else:
            answer(None, result)

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def _on_ask(self, peer: int, message: m.PeerRequest) -> None:
        def answer(error: OSError | None, value: Any) -> None:
            self.send(peer, m.PeerResponse(message.serial, (error.errno or errno.EIO) if error is not None else 0, value))

        self._serve(peer, message.op, message.args, answer)

    def _on_answer(self, peer: int, message: m.PeerResponse) -> None:
        asked = self._asked.pop(message.serial, None)
        if asked is not None:
            asked.answer(failure(message.error) if message.error else None, message.value)

    def _on_worked(self, event: FsWorked) -> None:
        answer = self._works.pop(event.serial, None)
        if answer is not None:
            answer(failure(event.error) if event.error else None, event.value)

    def _on_peer_down(self, event: PeerDown) -> None:
        self._fail(lambda asked: asked.node == event.peer, errno.EHOSTDOWN)

    def _fail(self, which: Callable[[_Asked], bool], number: int) -> None:
        for serial in [serial for serial, asked in self._asked.items() if which(asked)]:
            self._asked.pop(serial).answer(failure(number), None)

    def _on_timer(self, event: TimerFired) -> None:
        if event.key == "asked":
            self._fail(lambda asked: asked.until <= self.now, errno.ETIMEDOUT)
            self._watching = bool(self._asked)
            if self._watching:
                self.set_timer("asked", ASK_S / 10)
        elif isinstance(event.key, tuple) and event.key[0] == "sleep":
            running = self._sleepers.pop(event.key[1], None)
            if running is not None:
                self._resume(running, None, None)

    def idle(self) -> bool:
        """Is nothing under way?"""
        return not (self._asked or self._works or self._sleepers or self._held)

    def check_invariants(self) -> None:
        assert not self._ready, "an operation could go on, and does not"
        for key, waiting in self._held.items():
            assert len(set(map(id, waiting))) == len(waiting), f"somebody waits twice for {key}"
