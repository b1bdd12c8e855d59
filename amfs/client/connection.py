"""The connection from this process to the file system of a session: calls to one node, the gateway, and the change when the gateway dies.

Owns the connection, the pairing of answers with calls, the choice of the gateway, every time-out. Must not know: the meaning of the calls,
except which of them may be repeated.

Any number of threads may call. A thread that waits for its answer drives the connection for all of them (``_turn``). When no thread has
called for a while, a keeper thread drives it, so that the gateway receives heartbeats.
"""

from __future__ import annotations

import errno
import os
import random
import select
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from amfs.client import discovery
from amfs.client.attachment import Attachment
from amfs.errors import SessionError
from amfs.host import processes
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.messages import CLIENT_ID_MIN, FsRequest, FsResponse, Heartbeat, Member, Message, View

ANSWER_S = 60.0  # for one call, from when it is sent
CONNECT_S = 5.0  # for one node to greet us
WINDOW = 128  # calls on their way at a time
_LOOK_S = 0.5  # how often a local gateway's process is looked at while we wait
_REST_S = 0.1  # without calls; then the keeper takes over

#: Calls that change nothing and hang on no handle: if the gateway dies they are made again at the next one.
REPEATABLE = frozenset((
    q.Walk, q.ListPath, q.ReadlinkPath, q.GetXattrPath, q.ListXattrPath, q.GetRank, q.Locate, q.Df, q.Du,
    q.Export, q.Statfs, q.Scratch, q.Where, q.Bring, q.Spare, q.Digests, q.Check, q.CheckStore,
    q.SeenOutside, q.Load, q.Dump, q.MoveUrls,
))  # fmt: skip

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    """``about``: the paths concerned (at most two), as the caller wrote them, for the error's message."""

    request: q.Request[T]
    about: tuple[bytes | str, ...] = ()


class GatewayLost(OSError):
    """The node on which this call or handle depended died. EIO."""


class Pending:
    """A call on its way. ``NodeConnection.submit`` makes it, ``NodeConnection.wait`` returns its value."""

    __slots__ = ("call", "deadline", "done", "error", "generation", "serial", "value")

    def __init__(self, call: Call[Any], serial: int, generation: int, deadline: float) -> None:
        self.call = call
        self.serial = serial
        self.generation = generation
        self.deadline = deadline
        self.done = False
        self.error: BaseException | None = None
        self.value: Any = None


def failure(number: int, about: Sequence[bytes | str] = (), why: str = "") -> OSError:
    """The exception for an errno, of the class and with the attributes that Python's own functions give it."""
    names = [os.fsdecode(name) for name in about]
    text = why or os.strerror(number)
    if not names:
        return OSError(number, text)
    return OSError(number, text, names[0]) if len(names) == 1 else OSError(number, text, names[0], None, names[1])


class NodeConnection:
    """Connected to the gateway of session ``name`` (as ``discovery.find`` takes it) from the start. Raises SessionError."""

    def __init__(self, name: str | None = None, *, node: int | None = None, answer_s: float = ANSWER_S) -> None:
        self.session = discovery.find(name)
        self.reference = name if name and ("/" in name or name.endswith(".json")) else self.session.name  # by which others find it, too
        self.answer_s = answer_s
        self.pid = os.getpid()
        self.gateway = -1
        self.same_host = False
        self.generation = 0  # counts gateways
        self.uid, self.gid = os.geteuid(), os.getegid()
        self.closed = False
        self._wanted = node
        self._host = processes.host_id()
        self._pids = {entry.node: (entry.pid, entry.started) for entry in self.session.nodes if entry.host == self._host}
        self._lost: dict[int, float] = {}  # node -> when
        self._serial = 0
        self._pending: dict[int, Pending] = {}
        self._turns = threading.Condition(threading.RLock())
        self._driven = False  # some thread waits for the connection, without the lock
        self._connecting = False
        self._gone = False  # the gateway; noticed in the middle of a turn
        self._called = time.monotonic()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.attachment = Attachment(self.session)
        self.transport = self.attachment.transport
        self._poll = select.poll()
        self._poll.register(self.transport.fileno(), select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        try:
            with self._turns:
                self._connect()
        except BaseException:
            self._dispose()
            raise
        self._keeper = threading.Thread(target=self._keep, name="amfs connection", daemon=True)
        self._keeper.start()

    @property
    def view(self) -> View | None:
        """The session as its nodes told it last."""
        return self.attachment.view

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────

    def call(self, request: q.Request[T], about: tuple[bytes | str, ...] = ()) -> T:
        """Make one call and wait for its value. Raises OSError as the node says, SessionError if the session is gone."""
        value: T = self.wait(self.submit(Call(request, about)))
        return value

    def submit(self, call: Call[Any], generation: int = 0) -> Pending:
        """Send a call; ``wait`` for it later. ``generation``: of the gateway that must still be there (for calls on handles)."""
        with self._turns:
            pending = self._queue(call, generation)
            self._send()
        return pending

    def call_many(self, calls: Iterable[Call[T]], *, window: int = WINDOW, generation: int = 0) -> list[T | OSError]:
        """Make many calls, ``window`` of them on their way at a time; returns value or OSError of each, in order."""
        waiting: list[Pending] = []
        results: list[T | OSError] = []
        more = iter(calls)
        at = 0
        try:
            while True:
                with self._turns:
                    for call in more:
                        waiting.append(self._queue(call, generation))
                        if len(waiting) - at >= window:
                            break
                    self._send()
                if at == len(waiting):
                    return results
                # Wait for half of what is out, so that the calls travel in batches.
                for pending in waiting[at : at + max(1, (len(waiting) - at) // 2)]:
                    at += 1
                    try:
                        results.append(self.wait(pending))
                    except OSError as error:
                        results.append(error)
        except BaseException:
            self.discard(waiting[at:])
            raise

    def wait(self, pending: Pending) -> Any:
        """The value of a call. Raises what it raised."""
        with self._turns:
            try:
                while not pending.done:
                    self._check_usable()
                    if time.monotonic() >= pending.deadline:
                        raise self._silence(pending.call)
                    if self._driven:
                        self._turns.wait(max(0.0, pending.deadline - time.monotonic()))
                    else:
                        self._turn(pending.deadline)
            finally:
                self._called = time.monotonic()
                self._pending.pop(pending.serial, None)
        if pending.error is not None:
            raise pending.error
        return pending.value

    def members(self) -> tuple[Member, ...]:
        """The nodes as the session last said. Raises SessionError if none is left."""
        with self._turns:
            self._check_usable()
            if self.gateway < 0:
                self._connect()
            return self.view.members if self.view is not None else ()

    def number(self) -> int:
        """A number that was not given before."""
        with self._turns:
            self._serial += 1
            return self._serial

    def settle(self, pendings: Iterable[Pending]) -> None:
        """Wait until these have been answered, whatever the answer: a handle is closed only when nothing is at work on it."""
        for pending in pendings:
            with suppress(OSError):
                self.wait(pending)

    def discard(self, pendings: Iterable[Pending]) -> None:
        """Nobody will ask for these."""
        with self._turns:
            for pending in pendings:
                self._pending.pop(pending.serial, None)

    def _queue(self, call: Call[Any], generation: int = 0) -> Pending:
        self._check_usable()
        while self._connecting:  # another thread looks for a gateway
            self._turns.wait(_LOOK_S)
            self._check_usable()
        if self.gateway < 0:
            self._connect()
        self._called = now = time.monotonic()
        self._serial += 1
        pending = Pending(call, self._serial, generation or self.generation, now + self.answer_s)
        if generation and generation != self.generation:
            self._fail(pending)
            return pending
        self._pending[self._serial] = pending
        self.transport.queue(self.gateway, FsRequest(self._serial, call.request, self.uid, self.gid))
        return pending

    def _send(self) -> None:
        self.transport.flush(time.monotonic())
        if self._driven:
            os.eventfd_write(self._wake, 1)  # our sending may have hidden what it waits for

    def _silence(self, call: Call[Any]) -> OSError:
        what = f"node {self.gateway} of session {self.session.name} did not answer within {self.answer_s:g} s ({q.name_of(call.request)})"
        return failure(errno.ETIMEDOUT, call.about, what)

    def _check_usable(self) -> None:
        if self.closed:
            raise SessionError(f"the connection to session {self.session.name} is closed")
        if os.getpid() != self.pid:
            raise SessionError(f"the connection to session {self.session.name} belongs to the process that this one was forked from")

    # ── driving the connection ─────────────────────────────────────────────────────────────────────

    def _turn(self, until: float) -> None:
        """Wait for something to happen, at most until then, and deal with all of it. With the lock; gives it away while it waits."""
        transport = self.transport
        now = time.monotonic()
        transport.flush(now)
        due = transport.next_timer()
        end = min(until, now + _LOOK_S, due if due is not None else until)
        if not transport.pending():
            self._driven = True
            self._turns.release()
            try:
                self._poll.poll(max(0.0, end - now) * 1000)
            finally:
                self._turns.acquire()
                self._driven = False
                self._turns.notify_all()
            if self.closed:
                return
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        transport.poll(0.0)
        now = time.monotonic()
        for sender, message in transport.receive(now):
            self._take(sender, message)
        for peer in [*transport.take_restarted(), *transport.take_refused(), *transport.on_timer(now)]:
            self._lose(peer)
        if now >= end:
            self._look()
        if self._gone:
            self._gone = False
            self._change_gateway()
        transport.flush(now)
        self._turns.notify_all()  # answers may be for other threads, and one of them must drive when we leave

    def _take(self, sender: int, message: Message) -> None:
        if isinstance(message, FsResponse):
            pending = self._pending.pop(message.serial, None)
            if pending is None or pending.generation != self.generation:
                self._late(message)
                return
            if message.error:
                why = message.value if isinstance(message.value, str) else ""
                pending.error = failure(message.error, pending.call.about, why)
            else:
                pending.value = msgspec.convert(message.value, q.answer_type(type(pending.call.request)))
            pending.done = True
        elif isinstance(message, View):
            if self.attachment.adopt(message) and self.gateway >= 0 and all(member.node != self.gateway for member in message.members):
                self._lose(self.gateway)
        elif isinstance(message, Heartbeat) and sender < CLIENT_ID_MIN:
            self.transport.queue(sender, Heartbeat(self.view.epoch if self.view else 0))

    def _late(self, message: FsResponse) -> None:
        """An answer that nobody waits for any more; if it is a handle, it is given back."""
        value = message.value
        if not message.error and isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], int):
            self._serial += 1
            self.transport.queue(self.gateway, FsRequest(self._serial, q.Close(value[0]), self.uid, self.gid))

    def _look(self) -> None:
        pid, started = self._pids.get(self.gateway, (0, 0))
        if pid and not processes.is_running(pid, started):
            self._lose(self.gateway)

    def _lose(self, peer: int) -> None:
        self._lost[peer] = time.monotonic()
        self._gone = self._gone or peer == self.gateway

    def _change_gateway(self) -> None:
        """The gateway is lost: go on with another node. Calls that may be done twice are asked again there, the rest fail."""
        self.transport.close_peer(self.gateway)
        self.gateway = -1
        stranded, self._pending = list(self._pending.values()), {}
        try:
            self._connect()
        except SessionError as error:
            for pending in stranded:
                pending.error, pending.done = error, True
            return
        for pending in stranded:
            if type(pending.call.request) in REPEATABLE:
                self._serial += 1
                pending.serial, pending.generation = self._serial, self.generation
                pending.deadline = time.monotonic() + self.answer_s
                self._pending[pending.serial] = pending
                self.transport.queue(self.gateway, FsRequest(self._serial, pending.call.request, self.uid, self.gid))
            else:
                self._fail(pending)
        self._turns.notify_all()

    def _fail(self, pending: Pending) -> None:
        why = "the node that served this was lost; whether it was done is not known"
        names = [os.fsdecode(name) for name in pending.call.about]
        pending.error = GatewayLost(errno.EIO, why, *names[:1])
        pending.done = True

    # ── the gateway ────────────────────────────────────────────────────────────────────────────────

    def _candidates(self) -> list[int]:
        """Nodes to try, best first: the one asked for, those of this host, the others; those that were lost, last."""
        hosts = {entry.node: entry.host for entry in self.session.nodes}
        if self.view is not None:
            hosts = {member.node: member.host for member in self.view.members}

        def rank(node: int) -> tuple[bool, bool, bool, float]:
            local = hosts[node] == self._host
            return node in self._lost, node != self._wanted, not local, float(node) if local else random.random()

        nodes = sorted(hosts, key=rank)
        return [node for node in nodes if node not in self._pids or processes.is_running(*self._pids[node])]

    def _connect(self) -> None:
        """Find a node that greets us. Raises SessionError when none does."""
        self._connecting = True
        try:
            self._greet()
        finally:
            self._connecting = False
            self._turns.notify_all()

    def _greet(self) -> None:
        tried: set[int] = set()
        gone = False
        while not gone:
            node = next((node for node in self._candidates() if node not in tried), None)
            if node is None:
                break
            tried.add(node)
            self.attachment.view, before = None, self.view
            self.attachment.greet([node])
            end = time.monotonic() + CONNECT_S
            while self.view is None and time.monotonic() < end:
                if node in self._lost and before is not None and self._lost[node] > end - CONNECT_S:
                    break
                if node in self._pids and not processes.is_running(*self._pids[node]):
                    break
                self._turn(end)
                if self.closed:
                    raise SessionError(f"the connection to session {self.session.name} is closed")
            greeted = self.view
            if greeted is None:
                self.attachment.view = before
                self.transport.close_peer(node)
                continue
            gone = not greeted.members
            members: dict[int, Member] = {member.node: member for member in greeted.members}
            if node in members:
                self.gateway = node
                self.same_host = members[node].host == self._host
                self.generation += 1
                return
        why = "was ended" if gone else "does not answer"
        refused = self.attachment.refusals()
        raise SessionError(f"session {self.session.name} {why}" + (f"; {refused}" if refused else ""))

    # ── when nobody calls ──────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        """Drive the connection while nobody else does."""
        resting = select.poll()
        resting.register(self.transport.fileno(), select.POLLIN)
        resting.register(self._stop, select.POLLIN)
        stopped = select.poll()
        stopped.register(self._stop, select.POLLIN)
        while not self.closed:
            idle = time.monotonic() - self._called
            if idle < _REST_S:
                if stopped.poll((_REST_S - idle) * 1000):
                    return
                continue
            with self._turns:
                if self.closed:
                    return
                if self._driven:
                    self._called = time.monotonic()
                    continue
                due = self.transport.next_timer()
                wait = None if due is None else max(0.0, due - time.monotonic()) * 1000
                if self.transport.pending():
                    wait = 0.0
            if any(fd == self._stop for fd, _ in resting.poll(wait)):
                return
            with self._turns:
                if not self.closed and not self._driven:
                    self._turn(time.monotonic())

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Take leave of the gateway and close. Calls that wait fail. Repeatable; nothing in a forked child."""
        if self.closed or os.getpid() != self.pid:
            return
        with self._turns:
            if self.closed:
                return
            self.closed = True
            os.eventfd_write(self._stop, 1)
            os.eventfd_write(self._wake, 1)
            end = time.monotonic() + 5.0
            while self._driven and time.monotonic() < end:
                self._turns.wait(0.1)
        if threading.current_thread() is not self._keeper:
            self._keeper.join(5.0)
        self.attachment.leave(drain_s=0.5)
        self._dispose()

    def _dispose(self) -> None:
        self.closed = True
        self.transport.close()
        os.close(self._wake)
        os.close(self._stop)
