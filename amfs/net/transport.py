"""Messages between processes over ZeroMQ. The only module that imports zmq; all of it runs in the thread of one poll loop.

Owns the sockets, who may talk to us, and one ``Link`` per peer. Must not know: what a message means, who should be a member.

A node binds a ROUTER on ``ipc://`` (a file of mode 0600 in the session's private directory) and, when asked, one on ``tcp://`` with CURVE;
it has one DEALER to each peer that it sends to. Clients (ids from CLIENT_ID_MIN) bind nothing and are answered through the ROUTER on which
they came. ZeroMQ may lose what is in flight when a connection breaks; the links make up for it, so every send here is non-blocking and may
be treated as lost.

The loop, in each turn::

    readable = transport.poll(timeout)       # until a message, a watched descriptor or the time-out
    for peer, message in transport.receive(now): …
    … transport.queue(peer, message) …
    transport.flush(now)                     # what was queued for one peer leaves as one batch
    down = transport.on_timer(now)
"""

from __future__ import annotations

import os
import random
import select
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import zmq
from zmq.utils import z85

from amfs.engine.messages import CLIENT_ID_MIN, Member, Message
from amfs.errors import ProtocolError, SystemSetupError
from amfs.net import wire
from amfs.net.addresses import advertised, pick
from amfs.net.guard import Handshakes, Refusals, answer_zap
from amfs.net.link import Limits, Link, Packet, State
from amfs.net.session import Keys, host_mark

UNACKED_BYTES_MAX = 64 << 20  # per peer; beyond that messages wait in the queue
FRAME_BYTES_MAX = 256 << 20
_FRAMES_PER_TURN = 1000  # received from one socket before the loop gets its turn
_HIGH_WATER = 2000  # frames in a socket; a link's window and its resends stay below
_CLIENTS_MAX = 1024  # idle clients remembered
_READABLE = (int(zmq.POLLIN), int(zmq.POLLIN | zmq.POLLOUT))
_MONITOR_EVENT = struct.Struct("=HI")  # event, value: read here because zmq.utils.monitor imports asyncio, a tenth of a node's start
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"


def make_keys() -> Keys:
    """New CURVE key pairs for a session. Raises SystemSetupError if this libzmq has no CURVE."""
    try:
        server, client = zmq.curve_keypair(), zmq.curve_keypair()
    except zmq.ZMQError as error:
        raise SystemSetupError(f"this ZeroMQ library cannot make keys ({error}); install pyzmq from its wheel") from None
    return Keys(*(key.decode() for key in (*server, *client)))


def random_client_id() -> int:
    """An id for a process that is no node."""
    return random.SystemRandom().randrange(CLIENT_ID_MIN, 1 << 62)


class _Channel(NamedTuple):
    """A socket to send on, its descriptor, and the socket that tells of its failures."""

    socket: zmq.Socket[bytes]
    descriptor: int
    monitor: zmq.Socket[bytes] | None = None


class _Peer:
    """What the transport keeps per peer: only the link is protocol, the rest is plumbing."""

    __slots__ = ("acks", "dealer", "endpoints", "host", "id", "link", "queue", "restarts", "route", "sizes", "unacked_bytes")

    def __init__(self, link: Link) -> None:
        self.id = link.peer
        self.link = link
        self.queue: list[Message] = []  # for the next flush
        self.acks: Packet | None = None  # the latest that may still ride on a batch
        self.endpoints: tuple[str, ...] = ()
        self.host = ""
        self.dealer: _Channel | None = None
        self.route: tuple[_Channel, bytes] | None = None  # ROUTER and routing id on which it came last
        self.sizes: deque[tuple[int, int]] = deque()  # (sequence number, bytes) of what is not acknowledged
        self.unacked_bytes = 0
        self.restarts = 0


class Transport:
    """The sockets of one process. Not thread-safe: one loop owns it."""

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
        self.host = host or host_mark()
        self.limits = limits or Limits()
        self.endpoints: tuple[str, ...] = ()  # where others reach us, best first
        self.refusals = Refusals()  # of others by us, and of us by others
        self.counters = {"bytes_sent": 0, "bytes_received": 0, "batches_sent": 0, "batches_received": 0, "lost": 0}
        self._keys = keys
        self._peers: dict[int, _Peer] = {}
        self._queued: dict[int, _Peer] = {}  # with something for the next flush
        self._armed: dict[int, _Peer] = {}  # whose link may have a timer
        self._due: float | None = None  # not later than the earliest timer of a link
        self._restarted: list[int] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, min(65536, self._context.get(zmq.SOCKET_LIMIT)))
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], bool]] = {}  # zmq descriptor -> reads what is there, returns whether more is
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        self._ready: dict[int, None] = {}  # zmq descriptors to read in the next receive()
        self._sent_on: dict[int, None] = {}  # zmq descriptors whose edge a send may have swallowed
        self._bound_files: list[str] = []
        self._inbox: list[tuple[int, Message]] = []
        self._now = 0.0
        self._closed = False
        try:
            self._bind(listen)
        except BaseException:
            self.close()
            raise

    # ── set-up ─────────────────────────────────────────────────────────────────────────────────────

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.SNDHWM, _HIGH_WATER)
        socket.set(zmq.RCVHWM, _HIGH_WATER)
        socket.set(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        return socket

    def _bind(self, listen: Sequence[str]) -> None:
        local = [endpoint for endpoint in listen if endpoint.startswith("ipc://")]
        remote = [endpoint for endpoint in listen if endpoint.startswith("tcp://")]
        if odd := set(listen) - set(local) - set(remote):
            raise SystemSetupError(f"cannot listen on {', '.join(sorted(odd))}: only ipc:// and tcp:// endpoints")
        if local:
            router = self._router().socket
            for endpoint in local:
                self._bind_one(router, endpoint)
                path = endpoint.removeprefix("ipc://")
                os.chmod(path, 0o600)
                self._bound_files.append(path)
                self.endpoints += (endpoint,)
        if remote:
            if self._keys is None:
                raise ValueError("tcp endpoints need keys")
            # The ZAP handler must be there before the first CURVE server is.
            zap = self._context.socket(zmq.REP)
            zap.set(zmq.LINGER, 0)
            zap.bind(_ZAP_ENDPOINT)
            public_key = z85.decode(self._keys.client_public)
            self._register(zap, lambda: self._answer_zap(zap, public_key))
            router = self._router().socket
            router.set(zmq.CURVE_SERVER, 1)
            router.set(zmq.CURVE_SECRETKEY, self._keys.server_secret.encode())
            router.set(zmq.ZAP_DOMAIN, b"amfs")
            router.set(zmq.HANDSHAKE_IVL, 10_000)
            handshakes = Handshakes()
            self._monitor(router, lambda *event: self._stranger(handshakes, *event))
            for endpoint in remote:
                if "[" in endpoint:
                    router.set(zmq.IPV6, 1)
                self._bind_one(router, endpoint)
                bound = router.get(zmq.LAST_ENDPOINT)
                assert isinstance(bound, bytes)
                self.endpoints += (advertised(bound.decode().rstrip("\0")),)

    def _router(self) -> _Channel:
        router = self._socket(zmq.ROUTER)
        router.set(zmq.ROUTER_MANDATORY, 1)  # so that we learn when a client has gone
        router.set(zmq.BACKLOG, 1024)
        router.set(zmq.TCP_KEEPALIVE, 1)
        channel = _Channel(router, self._descriptor(router))
        self._register(router, lambda: self._read_router(channel))
        return channel

    def _bind_one(self, router: zmq.Socket[bytes], endpoint: str) -> None:
        try:
            router.bind(endpoint)
        except zmq.ZMQError as error:
            raise SystemSetupError(f"cannot listen on {endpoint}: {error}") from None

    @staticmethod
    def _descriptor(socket: zmq.Socket[bytes]) -> int:
        descriptor = socket.get(zmq.FD)
        assert isinstance(descriptor, int)
        return descriptor

    def _register(self, socket: zmq.Socket[bytes], reader: Callable[[], bool]) -> int:
        descriptor = self._descriptor(socket)
        self._readers[descriptor] = reader
        self._sockets[descriptor] = socket
        self._ready[descriptor] = None  # look once: what arrived before shows no edge
        self._epoll.register(descriptor, select.EPOLLIN)
        return descriptor

    def _monitor(self, socket: zmq.Socket[bytes], tell: Callable[[int, int, str], None]) -> zmq.Socket[bytes]:
        monitor = socket.get_monitor_socket()
        monitor.set(zmq.LINGER, 0)

        def read() -> bool:
            try:
                head, endpoint = monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            event, value = _MONITOR_EVENT.unpack(head)
            tell(event, value, endpoint.decode(errors="replace"))
            return True

        self._register(monitor, read)
        return monitor

    def _stranger(self, handshakes: Handshakes, event: int, value: int, endpoint: str) -> None:
        """What happens on our TCP port: log who is turned away (the ZAP handler does that for keys of clients)."""
        refused = event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        if event == zmq.EVENT_ACCEPTED:
            handshakes.accepted(value)
        elif refused or event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_HANDSHAKE_FAILED_AUTH):
            handshakes.ended()
        elif event == zmq.EVENT_DISCONNECTED:
            refused = handshakes.disconnected(value)
        if refused:
            text = f"refused a stranger on {endpoint}: does not speak our protocol, or has other keys"
            self.refusals.add(f"stranger {endpoint}", text)

    def _refused_us(self, event: int, value: int, endpoint: str) -> None:
        if event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_AUTH):
            text = f"{endpoint} refused us: its keys are not those of this session file"
            self.refusals.add(f"refused us {endpoint}", text)

    def _unregister(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        del self._readers[descriptor], self._sockets[descriptor]
        self._ready.pop(descriptor, None)
        self._sent_on.pop(descriptor, None)

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
        if record.dealer is None:
            return
        dealer, record.dealer = record.dealer, None
        if dealer.monitor is not None:
            self._unregister(self._descriptor(dealer.monitor))
            dealer.socket.disable_monitor()
            dealer.monitor.close(0)  # or the context never ends
        self._unregister(dealer.descriptor)
        dealer.socket.close()

    def _dealer(self, record: _Peer) -> _Channel | None:
        endpoint = pick(record.endpoints, record.host, self.host)
        if endpoint is None:
            return None
        dealer = self._socket(zmq.DEALER)
        monitor = None
        dealer.set(zmq.RECONNECT_IVL, 20)
        dealer.set(zmq.RECONNECT_IVL_MAX, 1000)
        if endpoint.startswith("tcp://"):
            if self._keys is None:
                dealer.close()
                return None
            dealer.set(zmq.TCP_KEEPALIVE, 1)
            dealer.set(zmq.IPV6, 1 if "[" in endpoint else 0)
            dealer.set(zmq.CURVE_SERVERKEY, self._keys.server_public.encode())
            dealer.set(zmq.CURVE_PUBLICKEY, self._keys.client_public.encode())
            dealer.set(zmq.CURVE_SECRETKEY, self._keys.client_secret.encode())
            if self.own_id >= CLIENT_ID_MIN:  # a person waits for this one: say why it does not work
                monitor = self._monitor(dealer, self._refused_us)
        try:
            dealer.connect(endpoint)
        except zmq.ZMQError as error:
            self.refusals.add(endpoint, f"cannot connect to {endpoint}: {error}")
        record.dealer = _Channel(dealer, self._register(dealer, lambda: self._read_dealer(dealer)), monitor)
        return record.dealer

    # ── the loop's side ────────────────────────────────────────────────────────────────────────────

    def watch(self, descriptor: int) -> None:
        """Let ``poll`` also return when this descriptor is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    def fileno(self) -> int:
        """What an outer loop may watch for readability instead of calling ``poll``; silent while ``pending()`` is true."""
        return self._epoll.fileno()

    def pending(self) -> bool:
        """Whether messages wait that no descriptor shows."""
        # Sending handles a socket's internal signals, so that the descriptor may stay silent although messages came.
        for descriptor in self._sent_on:
            if self._sockets[descriptor].get(zmq.EVENTS) in _READABLE:
                self._ready[descriptor] = None
        self._sent_on.clear()
        return bool(self._ready)

    def poll(self, timeout_s: float) -> list[int]:
        """Wait for messages or watched descriptors, at most ``timeout_s``. Returns the watched ones that are readable."""
        if self.pending():
            timeout_s = 0.0
        watched = []
        for descriptor, _ in self._epoll.poll(max(0.0, timeout_s)):
            if descriptor in self._readers:
                self._ready[descriptor] = None
            else:
                watched.append(descriptor)
        return watched

    def queue(self, peer: int, message: Message) -> None:
        """Send with the next flush. Messages for a peer that is down are dropped."""
        record = self._peers.get(peer) or self._peer(peer)
        record.queue.append(message)
        self._queued[peer] = record

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
        """What ``poll`` saw arrive, as (sender, message), each sender's in order. Ask ``take_restarted`` before handling it."""
        if not self._ready:
            return []
        self._now = now
        ready, self._ready = self._ready, {}
        for descriptor in ready:
            reader = self._readers.get(descriptor)
            if reader is None:
                continue
            for _ in range(_FRAMES_PER_TURN):
                if not reader():
                    break
            else:
                self._ready[descriptor] = None
        inbox, self._inbox = self._inbox, []
        return inbox

    def take_restarted(self) -> list[int]:
        """Peers found to be new processes under an old id since the last call: what was on the way to their earlier life is lost."""
        restarted, self._restarted = self._restarted, []
        return restarted

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
        """Before the end: block until what was sent (to ``peers``) is acknowledged, at most ``timeout_s``; returns what arrived meanwhile.

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
        """Close everything at once; what was not sent yet is lost (see ``drain``). Repeatable."""
        if self._closed:
            return
        self._closed = True
        now = time.monotonic()
        for record in self._peers.values():
            if record.link.next_timer() is not None and record.link.state is State.UP:
                for packet in record.link.on_timer(now + self.limits.ack_delay_s):
                    if not packet.seq:  # say that we have got all; then nobody waits for us
                        self._transmit(record, packet)
        channels = [(record.dealer.socket, record.link.state) for record in self._peers.values() if record.dealer is not None]
        talking = {id(socket) for socket, state in channels if state is State.UP}
        for socket in self._sockets.values():
            # A moment for what the I/O thread has in hand, if somebody is there: a lone DEALER would wait for its peer in vain.
            is_router = socket.get(zmq.TYPE) == zmq.ROUTER
            socket.close(100 if is_router or id(socket) in talking else 0)
        self._context.term()
        self._epoll.close()
        for path in self._bound_files:
            try:
                os.unlink(path)
            except OSError:
                continue

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
            self.counters["lost"] += len(link.take_dropped())

    def _transmit(self, record: _Peer, packet: Packet) -> None:
        frame = wire.encode(packet)
        size = len(frame)
        if size > FRAME_BYTES_MAX:
            raise ProtocolError(f"a batch of {size} bytes for {record.id} is larger than {FRAME_BYTES_MAX}")
        if packet.seq and (not record.sizes or packet.seq > record.sizes[-1][0]):
            record.sizes.append((packet.seq, size))
            record.unacked_bytes += size
        channel, identity = record.dealer or self._dealer(record), None
        if channel is None and record.route is not None:
            channel, identity = record.route
        if channel is None:
            return  # nowhere to send yet: the link tries again, and gives up in the end
        self._sent_on[channel.descriptor] = None  # also if it fails: what a client that has hung up cannot get may swallow an edge as well
        try:
            if identity is None:
                channel.socket.send(frame, zmq.NOBLOCK, copy=size < 65536)
            else:
                channel.socket.send_multipart((identity, frame), zmq.NOBLOCK, copy=size < 65536)
        except zmq.Again:
            return  # full: as good as lost on the way
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            record.route = None  # the client has hung up
            return
        self.counters["bytes_sent"] += size
        if packet.seq:
            self.counters["batches_sent"] += 1

    def _read_router(self, router: _Channel) -> bool:
        try:
            parts = router.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(parts) != 2:
            self.refusals.add(f"frames {len(parts)}", f"refused a message of {len(parts)} frames")
            return True
        sender = self._take(parts[1], router, parts[0])
        if sender is not None:
            sender.route = (router, parts[0])
        return True

    def _read_dealer(self, dealer: zmq.Socket[bytes]) -> bool:
        try:
            parts = dealer.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(parts) == 1:
            self._take(parts[0])
        return True

    def _take(self, frame: bytes, router: _Channel | None = None, identity: bytes = b"") -> _Peer | None:
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
        if len(packets) == 1 and not packets[0].seq and packets[0].target:
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

    def _introduce(self, router: _Channel, identity: bytes) -> None:
        """Let a peer of another version see ours, so that it can tell its user."""
        hello = wire.encode(Packet(self.own_id, 0, self.incarnation, 0, 0, 0))
        self._sent_on[router.descriptor] = None
        try:
            router.socket.send_multipart((identity, hello), zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def _answer_zap(self, zap: zmq.Socket[bytes], public_key: bytes) -> bool:
        try:
            request = zap.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        reply, refused = answer_zap(request, public_key)
        if refused:
            self.refusals.add(f"key {refused}", f"refused a peer at {refused}: its key is not this session's")
        zap.send_multipart(reply, zmq.NOBLOCK)
        return True
