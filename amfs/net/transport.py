"""Messages between processes over ZeroMQ; all of it runs in the thread of one poll loop.

Owns one ``Link`` for each peer, with its records, timers and socket. Must not know: the meaning of a message, membership, ZeroMQ (only
``amfs.net.sockets`` uses it).

A node binds a ROUTER on ``ipc://`` (a file of mode 0600 in the session's private directory) and, when asked, one on ``tcp://`` with CURVE;
it has one DEALER to each peer that it sends to. Clients (ids from CLIENT_ID_MIN) bind nothing and are answered through the ROUTER on which
they came. When a connection breaks, ZeroMQ may lose messages that are in flight; the links send them again. So every send here is
non-blocking and may be treated as lost.

The loop, in each turn::

    readable = transport.poll(timeout)       # until a message, a watched descriptor or the time-out
    for peer, message in transport.receive(now): …
    … transport.queue(peer, message) …
    transport.flush(now)                     # messages queued for one peer leave as one batch
    down = transport.on_timer(now)
"""

from __future__ import annotations

import errno
import random
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from amfs.errors import ProtocolError
from amfs.host.life import is_held
from amfs.host.processes import host_id, same_machine
from amfs.net import wire
from amfs.net.addresses import pick
from amfs.net.guard import Refusals
from amfs.net.keys import Keys
from amfs.net.link import Limits, Link, Packet, State
from amfs.net.probes import Probes
from amfs.net.records import LIFE
from amfs.net.sockets import FRAME_BYTES_MAX, Channel, HungUpError, Sockets
from amfs.net.weight import weight
from amfs.vocabulary.messages import CLIENT_ID_MIN, FsRequest, FsResponse, Member, Message, PeerRequest, PeerResponse, RunBegin

UNACKED_BYTES_MAX = 64 << 20  # per peer; beyond that messages wait in the queue
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - (1 << 20)
_CLIENTS_MAX = 1024  # idle clients remembered
_OF_ANY_SIZE = frozenset((PeerRequest, PeerResponse, FsRequest, FsResponse, RunBegin))


def random_client_id() -> int:
    """An id for a process that is no node."""
    return random.SystemRandom().randrange(CLIENT_ID_MIN, 1 << 62)


class _Peer:
    """The state of the transport per peer: only the link is protocol, the rest is plumbing."""

    __slots__ = ("acks", "dealer", "endpoints", "host", "id", "link", "queue", "refused", "restarts", "route", "sizes", "unacked_bytes")

    def __init__(self, link: Link) -> None:
        self.id = link.peer
        self.link = link
        self.queue: list[Message] = []  # for the next flush
        self.acks: Packet | None = None  # the latest that may still ride on a batch
        self.endpoints: tuple[str, ...] = ()
        self.host = ""
        self.dealer: Channel | None = None
        self.route: tuple[Channel, bytes] | None = None  # ROUTER and routing id on which it came last
        self.sizes: deque[tuple[int, int]] = deque()  # (sequence number, bytes) of what is not acknowledged
        self.unacked_bytes = 0
        self.restarts = 0
        self.refused = False


class Transport:
    """All that one process says to others and hears from them. Not thread-safe: one loop owns it."""

    def __init__(
        self,
        own_id: int,
        keys: Keys | None = None,
        listen: Sequence[str] = (),
        *,
        incarnation: int = 0,
        host: str = "",
        limits: Limits | None = None,
    ) -> None:
        """``keys`` are needed for tcp. ``incarnation`` 0: taken from the clock. Raises SystemSetupError if an endpoint cannot be bound."""
        self.own_id = own_id
        self.incarnation = incarnation or time.time_ns() // 1000
        self.host = host or host_id()
        self.limits = limits or Limits()
        self.refusals = Refusals()  # of others by us, and of us by others
        self.counters = {"bytes_sent": 0, "bytes_received": 0, "batches_sent": 0, "batches_received": 0, "lost": 0}
        self._probes = Probes()
        self._sockets = Sockets(keys, self.refusals, self._arrived)
        self._peers: dict[int, _Peer] = {}
        self._queued: dict[int, _Peer] = {}  # with something for the next flush
        self._armed: dict[int, _Peer] = {}  # whose link may have a timer
        self._due: float | None = None  # not later than the earliest timer of a link
        self._restarted: list[int] = []
        self._refused: list[int] = []
        self._inbox: list[tuple[int, Message]] = []
        self._now = 0.0
        self._closed = False
        try:
            self._sockets.listen(listen)
        except BaseException:
            self.close()
            raise
        self.endpoints = self._sockets.endpoints  # where others reach us, best first

    # ── peers ──────────────────────────────────────────────────────────────────────────────────────

    def connect(self, peer: int, endpoints: Sequence[str], host: str = "") -> None:
        """Reach ``peer`` at the best of ``endpoints`` from now on; the connection is made when something is sent.

        ``host``: the peer's host mark; ipc endpoints are good only on the same host. No effect if they are what they were.
        """
        record = self._peer(peer)
        if record.endpoints != tuple(endpoints) or record.host != host:
            self._hang_up(record)
            record.endpoints, record.host = tuple(endpoints), host

    def set_members(self, members: Iterable[Member], now: float) -> None:
        """Where the nodes are and which incarnation each is. Nodes that are missing stay as they were: see ``close_peer``."""
        for member in members:
            if member.node == self.own_id or member.node < 0:
                continue
            self.connect(member.node, member.endpoints, member.host)
            record = self._peers[member.node]
            if member.incarnation > 0:
                self._after(record, record.link.expect(member.incarnation, now), now)

    def close_peer(self, peer: int) -> None:
        """Forget a peer that left or was declared dead: nothing more is sent to this incarnation of it or taken from it."""
        record = self._peers.get(peer)
        if record is None:
            return
        record.link.close()
        self._give_up(record)

    def backlog(self, peer: int) -> int:
        """Messages queued or unacknowledged batches for ``peer``: something to slow down by."""
        record = self._peers.get(peer)
        return len(record.queue) + record.link.outstanding if record else 0

    def _peer(self, peer: int) -> _Peer:
        record = self._peers.get(peer)
        if record is None:
            if peer == self.own_id:
                raise ProtocolError(f"a message to ourselves ({peer}) reached the transport")
            record = self._peers[peer] = _Peer(Link(peer, self.incarnation, self.own_id, self.limits))
        return record

    def _give_up(self, record: _Peer) -> None:
        """Its link is down. Nodes are remembered, so that this incarnation stays down; clients draw a new id anyway."""
        self.counters["lost"] += len(record.link.take_dropped()) + len(record.queue)
        self._hang_up(record)
        self._armed.pop(record.id, None)
        self._queued.pop(record.id, None)
        record.queue = []
        record.acks = None
        record.sizes.clear()
        record.unacked_bytes = 0
        if record.id >= CLIENT_ID_MIN:
            self._peers.pop(record.id, None)

    def _forget(self, record: _Peer) -> None:
        self._hang_up(record)
        for table in (self._peers, self._armed, self._queued):
            table.pop(record.id, None)

    def _hang_up(self, record: _Peer) -> None:
        if record.dealer is not None:
            dealer, record.dealer = record.dealer, None
            self._sockets.hang_up(dealer)

    def _dealer(self, record: _Peer) -> Channel | None:
        endpoint = pick(record.endpoints, record.host, self.host)
        if endpoint is None:
            return None
        record.dealer = self._sockets.dial(endpoint, partial(self._connected, record) if self.own_id >= CLIENT_ID_MIN else None)
        return record.dealer

    def _connected(self, record: _Peer) -> None:
        """A node answers a client on the connection on which it heard it last. When that broke it cannot, until it hears the client on
        the next one; and a client that waits for its answer has nothing to say."""
        if record.link.state is State.UP:
            self._transmit(record, record.link.acknowledge())

    # ── the loop's side ────────────────────────────────────────────────────────────────────────────

    def watch(self, descriptor: int) -> None:
        """Let ``poll`` also return when this descriptor is readable."""
        self._sockets.watch(descriptor)

    def fileno(self) -> int:
        """The descriptor that an outer loop may watch for readability instead of calling ``poll``; silent while ``pending()`` is true."""
        return self._sockets.fileno()

    def pending(self) -> bool:
        """Whether messages wait that no descriptor shows."""
        return self._sockets.pending()

    def poll(self, timeout_s: float) -> list[int]:
        """Wait for messages or watched descriptors, at most ``timeout_s``. Returns the watched ones that are readable."""
        return self._sockets.poll(timeout_s)

    def queue(self, peer: int, message: Message) -> None:
        """Send with the next flush. Messages for a peer that is down are dropped."""
        record = self._peers.get(peer) or self._peer(peer)
        if type(message) in _OF_ANY_SIZE and (size := weight(message)) > MESSAGE_BYTES_MAX:
            self._too_large(message, f"a {type(message).__name__} of {size} bytes for {peer} is larger than {MESSAGE_BYTES_MAX}")
            if not isinstance(message, (PeerResponse, FsResponse)):
                return
            message = type(message)(message.serial, errno.EMSGSIZE)
        record.queue.append(message)
        self._queued[peer] = record

    def _too_large(self, message: object, text: str) -> None:
        """A message that cannot be sent ends a client, whose user hears why. A node goes on: those who wait for this give up in time."""
        if self.own_id >= CLIENT_ID_MIN:
            raise ProtocolError(text)
        self.refusals.add(f"unsendable {type(message).__name__}", text)

    def _encoded(self, packet: Packet) -> bytes | bytearray:
        try:
            return wire.encode(packet)
        except ProtocolError as error:
            self._too_large(packet, str(error))
        return wire.encode(packet._replace(messages=[message for message in packet.messages if wire.encodable(message)]))

    def flush(self, now: float) -> None:
        """Send what was queued, one batch per peer, then the acknowledgements that found no batch to ride on."""
        if not self._queued:
            return
        queued, self._queued = self._queued, {}
        for record in queued.values():
            if record.queue:
                if record.unacked_bytes > UNACKED_BYTES_MAX and record.link.state is State.UP:
                    self._queued[record.id] = record
                else:
                    messages, record.queue = record.queue, []
                    packets = record.link.send(messages, now)
                    if packets:
                        record.acks = None  # the batch says the same
                    self._after(record, packets, now)
            if record.acks is not None:
                ack, record.acks = record.acks, None
                self._transmit(record, ack)

    def receive(self, now: float) -> list[tuple[int, Message]]:
        """Messages that ``poll`` saw arrive, as (sender, message), each sender's in order. Ask ``take_restarted`` before handling it."""
        self._now = now
        self._sockets.read()
        inbox, self._inbox = self._inbox, []
        return inbox

    def is_gone(self, peer: int) -> bool:
        """Has the process of ``peer`` ended, as far as its host says so at once? To be asked again: an answer may take longer."""
        record = self._peers.get(peer)
        if record is None:
            return False
        if same_machine(record.host, self.host):
            for endpoint in record.endpoints:  # one that ended in an orderly way has taken its socket along, but not its lock
                if endpoint.startswith("ipc://") and is_held(Path(endpoint.removeprefix("ipc://")).with_suffix(LIFE)) is False:
                    return True
        chosen = pick(record.endpoints, record.host, self.host)
        return chosen is not None and self._probes.is_refused(chosen)

    def listen_again(self) -> None:
        """Where the files of sockets were removed. Raises SystemSetupError."""
        self._sockets.listen_again()

    def take_restarted(self) -> list[int]:
        """Peers found to be new processes under an old id since the last call: messages on the way to their earlier life are lost."""
        restarted, self._restarted = self._restarted, []
        return restarted

    def take_refused(self) -> list[int]:
        """Peers that live and have given up on this process, since the last call: messages on the way to them are lost."""
        refused, self._refused = self._refused, []
        return refused

    def heard(self) -> dict[int, float]:
        """When anything last arrived from each process to which our link is up."""
        return {peer: record.link.heard_at for peer, record in self._peers.items() if record.link.state is State.UP}

    def next_timer(self) -> float | None:
        """When ``on_timer`` wants to be called, if at all. May be earlier than need be."""
        return self._due

    def on_timer(self, now: float) -> list[int]:
        """Acknowledge and resend what is due. Returns the peers that are down from now on."""
        if self._due is None or now < self._due:
            return []
        self._due = None
        down = []
        for record in list(self._armed.values()):
            due = record.link.next_timer()
            if due is not None and due <= now:
                packets = record.link.on_timer(now)
                if record.link.state is State.DOWN:
                    down.append(record.id)
                    self._give_up(record)
                    continue
                for packet in packets:
                    self._transmit(record, packet)
                due = record.link.next_timer()
            if due is None:
                self._armed.pop(record.id, None)
            elif self._due is None or due < self._due:
                self._due = due
        return down

    def drain(self, timeout_s: float, peers: Collection[int] | None = None) -> list[tuple[int, Message]]:
        """Before the end: block until all messages (to ``peers``) are acknowledged, at most ``timeout_s``; returns those that came in.

        Clients that have hung up are not waited for.
        """
        received: list[tuple[int, Message]] = []
        end = time.monotonic() + timeout_s
        while (now := time.monotonic()) < end:
            self.flush(now)
            self.on_timer(now)
            concerned = [record for record in self._peers.values() if peers is None or record.id in peers]
            reachable = [record for record in concerned if record.dealer is not None or record.route is not None]
            if not any(record.queue or record.link.outstanding for record in reachable):
                break
            due = self._due if self._due is not None else end
            self.poll(max(0.0, min(due, end) - now))
            received += self.receive(time.monotonic())
        return received

    def close(self) -> None:
        """Close everything at once; messages not sent yet are lost (see ``drain``). Repeatable."""
        if self._closed:
            return
        self._closed = True
        self._probes.close()
        now = time.monotonic()
        for record in self._peers.values():
            if record.link.next_timer() is not None and record.link.state is State.UP:
                for packet in record.link.on_timer(now + self.limits.ack_delay_s):
                    if not packet.seq:  # say that we have got all; then nobody waits for us
                        self._transmit(record, packet)
        peers = self._peers.values()
        self._sockets.close([peer.dealer for peer in peers if peer.dealer is not None and peer.link.state is State.UP])

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────

    def _after(self, record: _Peer, packets: list[Packet], now: float) -> None:
        """Put a link's packets on their way and keep its books."""
        link = record.link
        for packet in packets:
            self._transmit(record, packet)
        if link.restarts != record.restarts:
            record.restarts = link.restarts
            self.counters["lost"] += len(link.take_dropped())
            record.sizes.clear()
            record.unacked_bytes = 0
            self._restarted.append(record.id)
        due = link.next_timer()
        if due is not None:
            self._armed[record.id] = record
            if self._due is None or due < self._due:
                self._due = due
        elif link.state is State.DOWN:
            if link.refused and not record.refused:
                self._refused.append(record.id)
                self._give_up(record)
            self.counters["lost"] += len(link.take_dropped())
        record.refused = link.refused

    def _transmit(self, record: _Peer, packet: Packet) -> None:
        frame = self._encoded(packet)
        size = len(frame)
        if size > FRAME_BYTES_MAX:
            self._too_large(packet, f"a batch of {size} bytes for {record.id} is larger than {FRAME_BYTES_MAX}")
            return
        if packet.seq and (not record.sizes or packet.seq > record.sizes[-1][0]):
            record.sizes.append((packet.seq, size))
            record.unacked_bytes += size
        channel, identity = record.dealer or self._dealer(record), b""
        if channel is None and record.route is not None:
            channel, identity = record.route
        if channel is None:
            return  # nowhere to send yet: the link tries again, and gives up in the end
        try:
            if not self._sockets.send(channel, identity, frame):
                return
        except HungUpError:
            record.route = None
            return
        self.counters["bytes_sent"] += size
        if packet.seq:
            self.counters["batches_sent"] += 1

    def _arrived(self, frame: bytes, router: Channel | None, identity: bytes) -> None:
        sender = self._take(frame, router, identity)
        if sender is not None and router is not None:
            sender.route = (router, identity)

    def _take(self, frame: bytes, router: Channel | None, identity: bytes) -> _Peer | None:
        """A frame arrived: decode it, give it to its link. Returns the sender, None if it was refused."""
        try:
            packet = wire.decode(frame)
        except wire.RemoteProtocolError as error:
            if self.refusals.add(f"frame {str(error)[:20]}", f"refused a peer's frame: {error}") and router is not None:
                self._introduce(router, identity)
            return None
        if packet.receiver != self.own_id:
            return None  # for an id that this process had, or for who had our port before
        if packet.sender == self.own_id:
            self.refusals.add("own id", f"refused a peer that claims our own id {self.own_id}")
            return None
        record = self._peers.get(packet.sender)
        if record is None:
            if packet.sender >= CLIENT_ID_MIN:
                self._make_room()
            record = self._peer(packet.sender)
        self.counters["bytes_received"] += len(frame)
        self.counters["batches_received"] += packet.seq > 0
        link = record.link
        if router is not None and record.route is None:
            record.route = (router, identity)
        delivered, packets = link.receive(packet, self._now)
        if record.sizes:
            acknowledged = link.acknowledged
            while record.sizes and record.sizes[0][0] <= acknowledged:
                record.unacked_bytes -= record.sizes.popleft()[1]
        if len(packets) == 1 and not packets[0].seq and packets[0].target and not packets[0].closed:
            record.acks = packets[0]  # later ones say all that this one says
            self._queued[record.id] = record
            packets = []
        self._after(record, packets, self._now)
        for message in delivered:
            self._inbox.append((packet.sender, message))
        return record

    def _make_room(self) -> None:
        clients = [record for record in self._peers.values() if record.id >= CLIENT_ID_MIN]
        if len(clients) >= _CLIENTS_MAX:
            idle = next((record for record in clients if not record.link.outstanding and not record.queue), clients[0])
            self._forget(idle)

    def _introduce(self, router: Channel, identity: bytes) -> None:
        """Let a peer of another version see ours, so that it can tell its user."""
        hello = wire.encode(Packet(self.own_id, 0, self.incarnation, 0, 0, 0))
        with suppress(HungUpError):
            self._sockets.send(router, identity, hello)
