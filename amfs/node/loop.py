"""The poll loop of one process. The only place where machines, sockets, tmpfs and launcher meet.

Threads: the loop's thread owns every machine, socket and timer. Launcher, copier and data server have native threads of their own,
which give back completions through eventfds that are polled here. Another Python thread may only append to ``inbox`` and write the
wake-up eventfd (``post``). Nothing here blocks, and nothing here decides.

The same loop serves an embedded run (core and submitters, no transport), a node server (core and transport) and a client (submitters
and transport).
"""

from __future__ import annotations

import heapq
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from amfs.engine.validity import fault
from amfs.errors import InvalidTransition, ProtocolError
from amfs.host.processes import usable_cpus
from amfs.node.core import HEARTBEAT, NodeCore
from amfs.node.node_io import NodeIO
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    CancelTimer,
    ClockRead,
    Effect,
    Event,
    Log,
    PeerDown,
    PeerGone,
    PeersHeard,
    Probe,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
)

if TYPE_CHECKING:
    from amfs.net.transport import Transport

log = logging.getLogger("amfs.node")

now = time.monotonic
STAY_AWAKE_S = 0.0015


class LoopClient(Protocol):
    """Something else that lives in the loop and talks as a client: a submitter, a status question."""

    client: int

    def handle(self, event: Event, now: float) -> list[Effect]: ...

    def act(self, effect: Effect) -> None:
        """An effect that the loop does not know."""


class Timers:
    """Keyed timers: setting a key again replaces it."""

    def __init__(self) -> None:
        self._at: dict[object, float] = {}
        self._heap: list[tuple[float, int, object]] = []
        self._seq = 0

    def set(self, key: object, at: float) -> None:
        self._at[key] = at
        self._seq += 1
        heapq.heappush(self._heap, (at, self._seq, key))

    def cancel(self, key: object) -> None:
        self._at.pop(key, None)

    def next(self) -> float | None:
        """When the next one is due."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, time_now: float) -> list[object]:
        keys = []
        while (at := self.next()) is not None and at <= time_now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            keys.append(key)
        return keys


class Loop:
    """Drive ``core`` (with its ``node_io``), clients and ``transport``, whichever there are."""

    def __init__(self, core: NodeCore | None = None, node_io: NodeIO | None = None, transport: Transport | None = None) -> None:
        self.core = core
        self.node_io = node_io
        self.transport = transport
        self.clients: dict[int, LoopClient] = {}
        self.timers = Timers()
        self.stopping = ""
        self.was_ended = False  # with the whole session, by an order
        self.inbox: deque[Callable[[], None]] = deque()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self.on_view: Callable[[m.View], None] = lambda view: None
        self._local: deque[tuple[int, int, m.Message]] = deque()  # from, to, message: between core and clients in this process
        self._poll = select.epoll() if transport is None else None
        self._watched: set[int] = set()
        self._watch(self.wake_fd)
        self.turns = 0
        self.busy_since = 0.0  # 0: it waits
        self._awake_until = 0.0
        self._cpus = usable_cpus()

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` run in the loop's thread, unless the loop is closed. The one thing that other threads may do."""
        self.inbox.append(call)
        with self._waking:
            if self.wake_fd >= 0:
                os.eventfd_write(self.wake_fd, 1)

    def _watch(self, fd: int) -> None:
        if fd not in self._watched:
            self._watched.add(fd)
            if self._poll is not None:
                self._poll.register(fd, select.EPOLLIN)
            elif self.transport is not None:
                self.transport.watch(fd)

    def overdue(self, longer_s: float) -> list[tuple[str, float]]:
        """A turn that takes longer: everything else of this node waits for it. For any thread."""
        began = self.busy_since
        return [("a turn of the poll loop", now() - began)] if began and now() - began > longer_s else []

    def start(self) -> None:
        """Let the core found or join its session."""
        if self.node_io is not None:
            for fd in self.node_io.fds():
                self._watch(fd)
        if self.core is not None:
            self._tell_clock(now())
            self.act(self.core.node, self.core.start(now()))
            self._settle()

    def add_client(self, loop_client: LoopClient) -> None:
        self.clients[loop_client.client] = loop_client

    def tell(self, client: int, event: Event) -> None:
        """Give a client an event."""
        loop_client = self.clients.get(client)
        if loop_client is not None:
            self.act(client, loop_client.handle(event, now()))
            self._settle()

    def tell_node(self, event: Event) -> None:
        """Give the node of this process an event."""
        assert self.core is not None
        self.act(self.core.node, self.core.handle(event, now()))
        self._settle()

    # ── one turn ───────────────────────────────────────────────────────────────────────────────────

    def turn(self, longest_s: float = 60.0) -> None:
        """Wait for something to happen, at most ``longest_s``, and deal with all of it."""
        self.turns += 1
        time_now = now()
        wait = longest_s
        due = self.timers.next()
        if due is not None:
            wait = min(wait, due - time_now)
        transport = self.transport
        if transport is not None:
            due = transport.next_timer()
            if due is not None:
                wait = min(wait, due - time_now)
        wait = max(wait, 0.0) if not self.inbox else 0.0
        self.busy_since = 0.0
        if wait and time_now < self._awake_until and self._stay_awake():
            wait = 0.0
        ready = [fd for fd, _ in self._poll.poll(wait)] if self._poll is not None else transport.poll(wait)  # type: ignore[union-attr]
        self.busy_since = time_now = now()
        if ready or self.inbox:
            if self.wake_fd in ready:
                os.eventfd_read(self.wake_fd)
            while self.inbox:
                self.inbox.popleft()()
            core, node_io = self.core, self.node_io
            if node_io is not None and core is not None:
                events = node_io.collect()
                self._tell_clock(time_now)
                for event in events:
                    self._awake_until = time_now + STAY_AWAKE_S
                    self.act(core.node, core.first(event, time_now))  # successors start while the books are kept
                    self.act(core.node, core.rest(time_now))
                self._settle()
        if transport is not None:
            messages = transport.receive(time_now)
            if messages:
                self._tell_clock(time_now)
            for peer in transport.take_restarted():
                self._peer_down(peer, time_now)
            for peer in transport.take_refused():
                self._peer_down(peer, time_now, refused=True)
            for peer, message in messages:
                self._take(peer, transport.own_id, message, time_now)
            for peer in transport.on_timer(time_now):
                self._peer_down(peer, time_now)
        for key in self.timers.due(time_now):
            assert isinstance(key, tuple)
            owner, inner = key
            if self.core is not None and owner == self.core.node:
                if inner == HEARTBEAT and transport is not None:
                    self.act(owner, self.core.handle(PeersHeard(transport.heard()), time_now))
                self.act(owner, self.core.handle(TimerFired(inner), time_now))
            elif owner in self.clients:
                self.act(owner, self.clients[owner].handle(TimerFired(inner), time_now))
        self._settle()
        if transport is not None:
            transport.flush(now())

    def _tell_clock(self, time_now: float) -> None:
        """Give the file system the time; the events that follow happened before it."""
        if self.core is not None and self.core.fs is not None:
            self.act(self.core.node, self.core.handle(ClockRead(time.time_ns()), time_now))

    def _take(self, peer: int, own: int, message: m.Message, time_now: float) -> None:
        """A message from another process. A node has the files and tasks of others: no message ends it, whatever is wrong with that."""
        if why := fault(message):
            log.warning("refused %s from %d: %s", type(message).__name__, peer, why)
            return
        try:
            self._deliver(peer, own, message, time_now)
        except ProtocolError as error:
            if self.core is None and isinstance(error, InvalidTransition):
                raise  # our own fault, and loud
            log.error("from %d: %s", peer, error)
        except Exception:
            if self.core is None:
                raise
            log.exception("%s from %d could not be dealt with", type(message).__name__, peer)

    def _stay_awake(self) -> bool:
        """Look again and again for a short while, rather than sleep: in a chain of short tasks the next event is near, and to be woken
        on an idle CPU costs more than the work itself. Only with slots (and so CPUs) to spare, and with nobody else on the loop.
        Returns whether something has happened."""
        core, poll = self.core, self._poll
        if core is None or poll is None or not 0 < len(core.worker.inflight) < min(core.worker.slots, self._cpus):
            return False
        while now() < self._awake_until:
            if self.inbox or poll.poll(0.0):  # level-triggered: the turn's own poll finds it again
                return True
        return False

    def _settle(self) -> None:
        """Deliver what core and clients of this process said to each other, until they are silent."""
        local, node_io = self._local, self.node_io
        while True:
            while local:
                sender, to, message = local.popleft()
                self._deliver(sender, to, message, now())
            if node_io is None or not node_io.immediate:
                return
            assert self.core is not None
            # Only what ended at once: a program that never stops asking must not keep the loop from its timers and peers.
            for event in node_io.take_immediate():
                self.act(self.core.node, self.core.handle(event, now()))

    def _deliver(self, peer: int, to: int, message: m.Message, time_now: float) -> None:
        core = self.core
        if core is not None and to == core.node:
            self.act(to, core.handle(Received(peer, message), time_now))
            return
        if isinstance(message, m.View):
            self._view(message)
        if to in self.clients:
            self.act(to, self.clients[to].handle(Received(peer, message), time_now))

    def _peer_down(self, peer: int, time_now: float, refused: bool = False) -> None:
        event = PeerDown(peer, refused)
        kind = "client" if peer >= m.CLIENT_ID_MIN else "node"
        log.warning("%s %d %s", kind, peer, "has given up on us" if refused else "does not answer")
        if self.core is not None:
            self.act(self.core.node, self.core.handle(event, time_now))
        for client, loop_client in list(self.clients.items()):
            self.act(client, loop_client.handle(event, time_now))

    def _view(self, view: m.View) -> None:
        if self.transport is not None:
            self.transport.set_members(view.members, now())
        self.on_view(view)

    # ── effects ────────────────────────────────────────────────────────────────────────────────────

    def act(self, owner: int, effects: list[Effect]) -> None:
        """Do what a machine said. ``owner``: the node's or the client's id."""
        core, node_io = self.core, self.node_io
        for effect in effects:
            if isinstance(effect, Send):
                self._send(owner, effect.to, effect.message)
            elif node_io is not None and type(effect) in node_io.acts:
                try:
                    answer = node_io.acts[type(effect)](effect)
                except Exception as error:
                    answer = node_io.failed(effect, error)
                if answer is not None:
                    self._send(owner, answer.to, answer.message)
                elif node_io.grown:
                    node_io.grown = False
                    for fd in node_io.fds():
                        self._watch(fd)
            elif isinstance(effect, SetTimer):
                self.timers.set((owner, effect.key), effect.at)
            elif isinstance(effect, CancelTimer):
                self.timers.cancel((owner, effect.key))
            elif isinstance(effect, Log):
                log.log(effect.level, "%s", effect.text)
            elif isinstance(effect, Stop):
                self.stopping = effect.reason
                self.was_ended = effect.ended
            elif isinstance(effect, Probe):
                if core is not None and self.transport is not None and self.transport.is_gone(effect.peer):
                    self.act(owner, core.handle(PeerGone(effect.peer), now()))
            elif owner in self.clients:
                self.clients[owner].act(effect)
        if core is not None and owner == core.node and core.view_changed:
            core.view_changed = False
            if core.membership.view is not None:
                self._view(core.membership.view)

    def _send(self, owner: int, to: int, message: m.Message) -> None:
        if (self.core is not None and to == self.core.node) or to in self.clients:
            self._local.append((owner, to, message))
        elif self.transport is not None:
            self.transport.queue(to, message)

    def close(self) -> None:
        """Close what the loop itself opened."""
        if self._poll is not None:
            self._poll.close()
        with self._waking:  # its number may soon be that of another file
            if self.wake_fd >= 0:
                os.close(self.wake_fd)
            self.wake_fd = -1

    def __getstate__(self) -> Any:
        raise TypeError("a poll loop cannot be pickled")
