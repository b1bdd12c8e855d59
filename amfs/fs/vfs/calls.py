"""Operations that take several steps, as generators, and the questions between nodes that they are made of. Pure.

A generator yields what it waits for (``Ask``, a work order, ``Together``, ``Sleep``, ``Acquire``) and is sent the result, or an OSError is
thrown into it. ``ask``, ``work`` and ``together`` do that with the type of the answer. A question by a node (``PeerRequest``) is answered
by the handlers that the parts of the machine have listed with ``serve``; they may be generators.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from amfs.engine.machine import Machine
from amfs.errors import InvalidTransition
from amfs.fs.vfs.members import Members
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Effect, FsWork, FsWorked, PeerDown, TimerFired
from amfs.vocabulary.fs_requests import answer_type, received
from amfs.vocabulary.fs_works import WorkOrder
from amfs.vocabulary.peer_requests import BY_TAG, CHANGES_NAMES, CHANGES_NOTHING, WITHOUT_DIRECTORIES, Closed, PeerCall, PeerHandler

ASK_S = 30.0  # an answer that has not come by then is EIO
PATIENCE_S = 30.0  # for a partition to arrive, a lock to be given up, a dead owner to be replaced
PAUSE_FIRST_S, PAUSE_LAST_S = 0.001, 0.05

T = TypeVar("T")
Answer = Callable[[OSError | None, Any], None]


class Ask(NamedTuple):
    """Have ``node`` (this one, too) answer ``call``."""

    node: int
    call: PeerCall[Any]


class Together(NamedTuple):
    """All of these at once; the result is a list of results, an OSError in place of one that failed."""

    operations: Sequence[Generator[Any, Any, Any]]


class Sleep(NamedTuple):
    seconds: float


class Acquire(NamedTuple):
    """Wait until nobody else of this node holds ``key``; ``release`` must follow."""

    key: object


Operation = Generator[Ask | WorkOrder[Any] | Together | Sleep | Acquire, Any, T]


def ask(node: int, call: PeerCall[T]) -> Operation[T]:
    answer: T = yield Ask(node, call)
    return answer


def work(order: WorkOrder[T]) -> Operation[T]:
    value: T = yield order
    return value


def together(operations: Iterable[Operation[T]]) -> Operation[list[T | OSError]]:
    results: list[T | OSError] = yield Together(list(operations))
    return results


def failure(number: int) -> OSError:
    return OSError(number, errno.errorcode.get(number, f"error {number}"))


def number_of(error: OSError) -> int:
    return error.errno or errno.EIO


class _Asked(NamedTuple):
    node: int
    kind: type[PeerCall[Any]]
    answer: Answer
    until: float


class _Running(NamedTuple):
    operation: Operation[Any]
    answer: Answer


def _silent(error: OSError | None, value: Any) -> None:
    """For what nobody waits for."""


class Calls:
    """Runs operations. Knows which nodes live; knows nothing of files."""

    def __init__(self, machine: Machine, members: Members) -> None:
        """``machine``: gives the time, and takes effects."""
        self.members = members
        self.asked = 0  # how many questions this node has asked others
        #: Answers wait until backups know of the changes: does one that is given now have to wait? By what?
        self.unsettled: Callable[[], Operation[None] | None] = lambda: None
        self._late: dict[int, deque[list[m.Message]]] = {}  # peer -> what is not sent before an answer is: one that still waits is empty
        self._machine = machine
        self._wall = (0.0, 0)  # the time of an event, and the wall clock then
        self._handlers: dict[type, Callable[[int, Any], Any]] = {}
        self._serial = 0
        self._asked: dict[int, _Asked] = {}
        self._works: dict[int, Answer] = {}
        self._sleepers: dict[int, _Running] = {}
        self._held: dict[object, deque[_Running]] = {}  # key -> operations that wait for it
        self._ready: deque[tuple[_Running, OSError | None, Any]] = deque()
        self._stepping = False
        self._watching = False
        self._wrong: list[InvalidTransition] = []  # a fault of ours: raised when all that could go on has

    def serve(self, *handlers: PeerHandler) -> None:
        """From now on these answer what nodes ask."""
        self._handlers.update(handlers)

    @property
    def now(self) -> float:
        return self._machine.now

    @property
    def wall(self) -> int:
        """Nanoseconds since 1970."""
        at, shown = self._wall
        return shown + int((self.now - at) * 1e9)

    def set_wall(self, shown: int) -> None:
        self._wall = self.now, shown

    def number(self) -> int:
        """A new one."""
        self._serial += 1
        return self._serial

    def log(self, text: str, level: int = logging.INFO) -> None:
        self._machine.log(text, level)

    def give(self, effect: Effect) -> None:
        """To the node around the file system."""
        self._machine.out.append(effect)

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def spawn(self, operation: Operation[Any], answer: Answer = _silent) -> None:
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
        if self._wrong:
            raise self._wrong.pop()

    def _step(self, running: _Running, error: OSError | None, value: Any) -> None:
        try:
            wanted = running.operation.throw(error) if error is not None else running.operation.send(value)
        except StopIteration as end:
            running.answer(None, end.value)
        except OSError as failed:
            running.answer(failed, None)
        except InvalidTransition as wrong:
            self._wrong.append(wrong)
            running.answer(failure(errno.EIO), None)
        except Exception as wrong:
            # A client or peer sent arguments that do not fit the operation: its fault, and no reason for this node to end.
            self.log(f"an operation with impossible arguments: {type(wrong).__name__}: {wrong}", logging.WARNING)
            running.answer(failure(errno.EINVAL), None)
        else:
            self._want(running, wanted)

    def _want(self, running: _Running, wanted: Any) -> None:
        if isinstance(wanted, Ask):
            self._ask(wanted.node, wanted.call, lambda error, value: self._resume(running, error, value))
        elif isinstance(wanted, Together):
            self._run_together(running, wanted.operations)
        elif isinstance(wanted, Sleep):
            serial = self.number()
            self._sleepers[serial] = running
            self._machine.set_timer(("sleep", serial), wanted.seconds)
        elif isinstance(wanted, Acquire):
            if wanted.key in self._held:
                self._held[wanted.key].append(running)
            else:
                self._held[wanted.key] = deque()
                self._resume(running, None, None)
        elif isinstance(wanted, WorkOrder):  # whose class takes longest to be asked
            serial = self.number()
            self._works[serial] = lambda error, value: self._resume(running, error, value)
            self._machine.out.append(FsWork(serial, wanted))
        else:
            raise TypeError(f"an operation cannot wait for {wanted!r}")

    def _run_together(self, running: _Running, operations: Sequence[Operation[Any]]) -> None:
        results: list[Any] = [None] * len(operations)
        left = len(results)
        if not left:
            self._resume(running, None, results)

        def got(index: int, error: OSError | None, value: Any) -> None:
            nonlocal left
            results[index] = value if error is None else error
            left -= 1
            if not left:
                self._resume(running, None, results)

        for index, operation in enumerate(operations):
            self._step(_Running(operation, lambda error, value, index=index: got(index, error, value)), None, None)  # type: ignore[misc]

    def release(self, key: object) -> None:
        """Give up what ``Acquire`` gave; the next one that waits has it."""
        waiting = self._held[key]
        if waiting:
            self._resume(waiting.popleft(), None, None)
        else:
            del self._held[key]

    def is_held(self, key: object) -> bool:
        return key in self._held

    def wait(self, key: object) -> Operation[None]:
        """Until nobody of this node holds ``key``."""
        yield Acquire(key)
        self.release(key)

    def until(self, condition: Callable[[], bool]) -> Operation[None]:
        """EIO: not in time."""
        end = self.now + PATIENCE_S
        while not condition():
            if self.now >= end:
                raise failure(errno.EIO)
            yield Sleep(0.01)

    def introduced(self) -> Operation[None]:
        """Wait until this node knows the directories."""
        yield from self.until(lambda: self.members.introduced)

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────

    def ask_patiently(self, node: int, call: PeerCall[T]) -> Operation[T]:
        """Ask until it answers, however long that takes. EHOSTDOWN: it has left."""
        while True:
            try:
                return (yield from ask(node, call))
            except OSError as error:
                if error.errno != errno.ETIMEDOUT or node not in self.members.live:
                    raise

    def tell(self, node: int, call: PeerCall[Any]) -> None:
        """Have it done without waiting for the end. A node carries out a call before those that are sent to it later."""
        self._ask(node, call, _silent)

    def order(self, order: WorkOrder[Any]) -> None:
        """Likewise, by the I/O of this node."""
        self._machine.out.append(FsWork(0, order))

    def _ask(self, node: int, call: PeerCall[Any], answer: Answer) -> None:
        if node == self.members.node:
            self._serve(node, call, answer)
        elif node not in self.members.live:
            answer(failure(errno.EHOSTDOWN), None)
        else:
            serial = self.number()
            self.asked += 1
            self._asked[serial] = _Asked(node, type(call), answer, self.now + ASK_S)
            self._send(node, m.PeerRequest(serial, call))
            if not self._watching:
                self._watching = True
                self._machine.set_timer("asked", ASK_S / 10)

    def _serve(self, peer: int, call: PeerCall[Any], answer: Answer) -> None:
        if not self.members.introduced and type(call) not in WITHOUT_DIRECTORIES:
            self.spawn(self.introduced(), lambda error, _: answer(error, None) if error else self._serve_late(peer, call, answer))
            return
        if peer == self.members.node and (type(call) in CHANGES_NAMES or (isinstance(call, Closed) and call.origin)):
            answer = self._hold(answer)
        try:
            result = self._handlers[type(call)](peer, call)
        except OSError as error:
            answer(error, None)
            return
        except InvalidTransition:
            answer(failure(errno.EIO), None)
            raise
        except Exception as wrong:
            kind = type(call).__name__
            self.log(f"node {peer} asks {kind} with impossible arguments: {type(wrong).__name__}: {wrong}", logging.WARNING)
            answer(failure(errno.EINVAL), None)
            return
        if isinstance(result, Generator):
            self.spawn(result, answer)
        else:
            answer(None, result)

    def _serve_late(self, peer: int, call: PeerCall[Any], answer: Answer) -> None:
        """All nodes have taken back the steps of a manager that has died meanwhile; none of them may be done after that."""
        if peer == self.members.node or peer in self.members.live:
            self._serve(peer, call, answer)
        else:
            answer(failure(errno.EHOSTDOWN), None)

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def on_request(self, peer: int, message: m.PeerRequest) -> None:
        def answer(error: OSError | None, value: Any) -> None:
            response = m.PeerResponse(message.serial, number_of(error) if error is not None else 0, value)
            waits = None if kind in CHANGES_NOTHING else self.unsettled()
            if waits is None:
                self._send(peer, response)
            else:
                self._send_later(peer, response, waits)

        kind: type | None = None
        if peer >= m.CLIENT_ID_MIN:
            answer(failure(errno.EPERM), None)  # only nodes ask so
            return
        try:
            call = received(message.call, BY_TAG)
        except msgspec.ValidationError as wrong:
            self.log(f"node {peer} asks what is no question: {wrong}", logging.WARNING)
            answer(failure(errno.EINVAL), None)
        else:
            kind = type(call)
            self._serve(peer, call, answer)

    def _send(self, peer: int, message: m.Message) -> None:
        if peer in self._late:
            self._late[peer].append([message])
        else:
            self._machine.send(peer, message)

    def _send_later(self, peer: int, message: m.PeerResponse, waits: Operation[None]) -> None:
        """Messages to ``peer`` from now on come after it: news of changes must not come before the answers that they make old."""
        place: list[m.Message] = []
        self._late.setdefault(peer, deque()).append(place)

        def ready(error: OSError | None, value: Any) -> None:
            place.append(message if error is None else m.PeerResponse(message.serial, number_of(error), None))
            queue = self._late.get(peer, deque())
            while queue and queue[0]:
                self._machine.send(peer, queue.popleft()[0])
            if not queue:
                self._late.pop(peer, None)

        self.spawn(waits, ready)

    def settled(self) -> Operation[None]:
        """Until the backups know all that has been changed so far."""
        waits = self.unsettled()
        if waits is not None:
            yield from waits

    def _hold(self, answer: Answer) -> Answer:
        """``answer`` to an operation of this node, given when backups know all that has been changed by then. (That a file is opened or
        closed they need not know: its content is here, and goes with this node.)"""

        def settled(error: OSError | None, value: Any) -> None:
            waits = self.unsettled()
            if waits is None:
                answer(error, value)
            else:
                self.spawn(waits, lambda failed, _: answer(error or failed, value))

        return settled

    def on_response(self, peer: int, message: m.PeerResponse) -> None:
        asked = self._asked.pop(message.serial, None)
        if asked is None:
            return
        if message.error:
            asked.answer(failure(message.error), None)
            return
        try:
            value = msgspec.convert(message.value, answer_type(asked.kind))
        except msgspec.ValidationError as wrong:
            self.log(f"node {peer} answers {asked.kind.__name__} with what is no answer: {wrong}", logging.WARNING)
            asked.answer(failure(errno.EIO), None)
        else:
            asked.answer(None, value)

    def on_worked(self, event: FsWorked) -> None:
        answer = self._works.pop(event.serial, None)
        if answer is not None:
            answer(failure(event.error) if event.error else None, event.value)

    def on_peer_down(self, event: PeerDown) -> None:
        self.fail(event.peer)

    def fail(self, node: int) -> None:
        """It does not answer any more."""
        self._late.pop(node, None)
        self._fail(lambda asked: asked.node == node, errno.EHOSTDOWN)

    def _fail(self, which: Callable[[_Asked], bool], number: int) -> None:
        for serial in [serial for serial, asked in self._asked.items() if which(asked)]:
            self._asked.pop(serial).answer(failure(number), None)

    def on_timer(self, event: TimerFired) -> None:
        if event.key == "asked":
            self._fail(lambda asked: asked.until <= self.now, errno.ETIMEDOUT)
            self._watching = bool(self._asked)
            if self._watching:
                self._machine.set_timer("asked", ASK_S / 10)
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
            assert len(set(map(id, waiting))) == len(waiting), f"an operation waits twice for {key}"
