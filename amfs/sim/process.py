"""A simulated process: an inbox, timers, a poll loop that is busy for as long as its work costs, and a transport.

The counterpart of ``node.loop``: messages of a busy time are dealt with together in the next turn, and all messages for one peer
in one turn leave as one batch. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from amfs.net import wire
from amfs.net.link import Limits as LinkLimits
from amfs.net.link import Link, Packet, State
from amfs.sim.settings import NEVER
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Effect, Event, PeerDown, Received, TimerFired

LINGER_S = 1.0  # as ``node.main`` gives its transport
_encode = msgspec.msgpack.Encoder().encode


class Transport(Protocol):
    """Carries messages away from a process."""

    bytes_sent: int
    messages_sent: int

    def queue(self, to: int, message: m.Message) -> None: ...

    def flush(self, depart: float) -> None: ...

    def set_members(self, members: Iterable[m.Member]) -> None: ...

    def close_peer(self, peer: int) -> None: ...

    def heard(self) -> dict[int, float]: ...


class Process:
    """Base of the simulated node and the simulated client. ``id`` is what messages are addressed to."""

    def __init__(self, world: World, number: int, incarnation: int, *, links: LinkLimits | None) -> None:
        """``links`` None: messages always arrive, at once and in order; else as packets of real links over the faulty network."""
        self.world = world
        self.id = number
        self.incarnation = incarnation
        self.alive = True
        self.lingers_until = 0.0  # it decides nothing any more, and its transport works until then
        self.inbox: list[tuple[Any, ...]] = []
        self.timers: dict[object, float] = {}
        self.busy_until = 0.0
        self.busy_s = 0.0
        self.cost_us = 0.0
        self.transport: Transport = Direct(self) if links is None else Linked(self, links)
        self._turn_is_due = False
        world.processes[number] = self

    @property
    def listens(self) -> bool:
        """Is there a process that packets reach?"""
        return self.alive or self.world.now < self.lingers_until

    # ── the loop ───────────────────────────────────────────────────────────────────────────────────

    def arrive(self, item: tuple[Any, ...]) -> None:
        """Something for the next turn: ("frame", sender, bytes), ("batch", sender, messages), ("timer", key), ("event", event) or
        ("links",)."""
        self.inbox.append(item)
        if not self._turn_is_due:
            self._turn_is_due = True
            world = self.world
            world.at(max(world.now, self.busy_until), self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        if not self.alive:
            self._linger()
            return
        if self.world.now < self.busy_until:  # it was stopped meanwhile
            self._turn_is_due = True
            self.world.at(self.busy_until, self._turn)
            return
        items, self.inbox = self.inbox, []
        self.cost_us = 0.0
        for item in items:
            kind = item[0]
            if kind == "batch":
                self.cost_us += self.world.costs.batch_us
                for message in item[2]:
                    self.deliver(item[1], message)
            elif kind == "event":
                self.tell(item[1])
            elif kind == "timer":
                self.tell(TimerFired(item[1]))
            elif kind == "frame":
                assert isinstance(self.transport, Linked)
                self.cost_us += self.world.costs.batch_us
                self.transport.take(item[2])
            elif kind == "links":
                assert isinstance(self.transport, Linked)
                self.transport.on_timer()
            else:
                self.on_item(item)
            if not self.alive:
                return
        self.transport.flush(self.world.now + self.cost_us * 1e-6)
        self.busy_until = self.world.now + self.cost_us * 1e-6
        self.busy_s += self.cost_us * 1e-6

    def end(self) -> None:
        """End as a node does: it sends its last messages again until they are acknowledged, at most for a while."""
        self.die()
        self.transport.flush(self.world.now)
        if isinstance(self.transport, Linked) and self.transport.has_outstanding():
            self.lingers_until = self.world.now + LINGER_S

    def _linger(self) -> None:
        """Messages that arrive are acknowledged, and dropped."""
        items, self.inbox = self.inbox, []
        if not self.listens or not isinstance(self.transport, Linked):
            return
        for item in items:
            if item[0] == "frame":
                self.transport.take(item[2])
            elif item[0] == "links":
                self.transport.on_timer()
        self.transport.flush(self.world.now)
        if not self.transport.has_outstanding():
            self.lingers_until = 0.0

    def on_item(self, item: tuple[Any, ...]) -> None:
        """Something of a kind that only a subclass knows."""
        raise NotImplementedError(item[0])

    def deliver(self, peer: int, message: m.Message) -> None:
        self.world.note(self.id, f"from {peer}", message)
        self.tell(Received(peer, message))

    def tell(self, event: Event) -> None:
        """Give the machine an event and act on what it answers."""
        raise NotImplementedError

    def peer_down(self, peer: int, refused: bool = False) -> None:
        if not self.alive:
            return
        self.world.note(self.id, "is refused by" if refused else "sees down", peer)
        self.tell(PeerDown(peer, refused))

    def stall(self, seconds: float) -> None:
        """Do nothing for so long, as a process that was stopped, and go on as if nothing had been."""
        self.world.note(self.id, "stalls", seconds)
        self.busy_until = max(self.busy_until, self.world.now + seconds)

    def die(self) -> None:
        """Cease to exist; messages that were sent are on their way all the same."""
        self.world.note(self.id, "is no more", "")
        self.alive = False
        self.inbox = []
        self.timers = {}

    # ── timers ─────────────────────────────────────────────────────────────────────────────────────

    def set_timer(self, key: object, at: float) -> None:
        if at == NEVER:
            return
        self.timers[key] = at
        self.world.at(max(at, self.world.now), self._fire, key, at)

    def cancel_timer(self, key: object) -> None:
        self.timers.pop(key, None)

    def _fire(self, key: object, at: float) -> None:
        if self.alive and self.timers.get(key) == at:
            del self.timers[key]
            self.world.note(self.id, "timer", key)
            self.arrive(("timer", key))

    def unknown(self, effect: Effect) -> None:
        raise AssertionError(f"process {self.id} cannot act on {effect!r}")


class Direct:
    """A transport that loses nothing: a batch leaves when the sender's interface is free and arrives after the latency."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.queues: dict[int, list[m.Message]] = {}
        self.free_at = 0.0
        self.bytes_sent = 0
        self.messages_sent = 0

    def queue(self, to: int, message: m.Message) -> None:
        queue = self.queues.get(to)
        if queue is None:
            self.queues[to] = [message]
        else:
            queue.append(message)

    def flush(self, depart: float) -> None:
        if not self.queues:
            return
        world, process = self.world, self.process
        costs = world.costs
        queues, self.queues = self.queues, {}
        depart += len(queues) * costs.batch_us * 1e-6
        process.cost_us += len(queues) * costs.batch_us
        for to, messages in queues.items():
            if type(messages[0]) is m.View:
                size = 40 * len(messages[0].members) + 3 * len(messages[0].table)
            else:
                size = sum([len(_encode(message)) for message in messages]) + wire.HEADER.size
            self.bytes_sent += size
            self.messages_sent += len(messages)
            self.free_at = max(depart, self.free_at) + size / costs.bandwidth_bytes_s
            world.at(self.free_at + costs.latency_s, self._arrive, to, messages)

    def _arrive(self, to: int, messages: Sequence[m.Message]) -> None:
        process = self.world.processes.get(to)
        if process is not None and process.alive:
            process.arrive(("batch", self.process.id, messages))

    def set_members(self, members: Iterable[m.Member]) -> None:
        """Everybody is there already."""

    def close_peer(self, peer: int) -> None:
        """Nobody goes."""

    def heard(self) -> dict[int, float]:
        return {}


class Linked:
    """The counterpart of ``net.transport``: one Link per peer, packets as real frames over the faulty network."""

    def __init__(self, process: Process, limits: LinkLimits) -> None:
        self.process = process
        self.world = process.world
        self.limits = limits
        self.links: dict[int, Link] = {}
        self.queues: dict[int, list[m.Message]] = {}
        self.restarts: dict[int, int] = {}
        self.due = NEVER  # not later than the earliest timer of a link
        self.scheduled: set[float] = set()
        self.bytes_sent = 0
        self.messages_sent = 0
        self.out: list[Packet] = []

    def _link(self, peer: int) -> Link:
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = Link(peer, self.process.incarnation, self.process.id, self.limits)
        return link

    def queue(self, to: int, message: m.Message) -> None:
        assert to != self.process.id, "a message to ourselves reached the transport"
        self.queues.setdefault(to, []).append(message)

    def flush(self, depart: float) -> None:
        queues, self.queues = self.queues, {}
        for to, messages in queues.items():
            link = self._link(to)
            self.messages_sent += len(messages)
            self._after(link, link.send(messages, self.world.now))
        out, self.out = self.out, []
        for packet in out:
            frame = bytes(wire.encode(packet))
            self.bytes_sent += len(frame)
            self.world.carry(self.process.id, packet.receiver, frame, depart)

    def take(self, frame: bytes) -> None:
        packet = wire.decode(frame)
        link = self._link(packet.sender)
        delivered, packets = link.receive(packet, self.world.now)
        self._after(link, packets)
        if link.refused and packet.closed:
            self._give_up(packet.sender)
            self.process.peer_down(packet.sender, refused=True)
            return
        for message in delivered:
            if not self.process.alive:
                return
            self.process.deliver(packet.sender, message)

    def on_timer(self) -> None:
        now = self.world.now
        for peer, link in list(self.links.items()):
            due = link.next_timer()
            if due is not None and due <= now:
                packets = link.on_timer(now)
                if link.state is State.DOWN:
                    self._give_up(peer)
                    self.process.peer_down(peer)
                else:
                    self._after(link, packets)
            elif due is not None:
                self._arm(due)

    def _give_up(self, peer: int) -> None:
        self.links[peer].take_dropped()
        self.queues.pop(peer, None)
        if peer >= m.CLIENT_ID_MIN:
            del self.links[peer]

    def _after(self, link: Link, packets: Sequence[Packet]) -> None:
        self.out.extend(packets)
        if self.world.watched:
            link.check_invariants()
        if link.restarts != self.restarts.get(link.peer, 0):
            self.restarts[link.peer] = link.restarts
            link.take_dropped()
            self.process.peer_down(link.peer)
        timer = link.next_timer()
        if timer is not None:
            self._arm(timer)

    def _arm(self, due: float) -> None:
        if due < self.due:
            self.due = due
            if due not in self.scheduled:  # or the same moment would be scheduled again and again
                self.scheduled.add(due)
                self.world.at(max(due, self.world.now), self._due, due)

    def _due(self, due: float) -> None:
        self.scheduled.discard(due)
        if self.process.listens and self.due == due:
            self.due = NEVER
            self.process.arrive(("links",))

    def set_members(self, members: Iterable[m.Member]) -> None:
        for member in members:
            if member.node != self.process.id and member.incarnation > 0:
                link = self._link(member.node)
                self._after(link, link.expect(member.incarnation, self.world.now))

    def has_outstanding(self) -> bool:
        """Is anything not acknowledged that may still be?"""
        return any(link.outstanding for link in self.links.values() if link.state is State.UP)

    def heard(self) -> dict[int, float]:
        return {peer: link.heard_at for peer, link in self.links.items() if link.state is State.UP}

    def close_peer(self, peer: int) -> None:
        if peer in self.links:
            self.links[peer].close()
            self._give_up(peer)
