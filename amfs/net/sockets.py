"""The ZeroMQ sockets of one process, and the descriptors that its loop watches. The only module that imports zmq.

Owns the context, the sockets, the epoll set and the admission of connections. Must not know: peers or packets; frames are bytes here, on
channels. Everything here runs in the thread of one poll loop.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import zmq
from zmq.utils import z85

from amfs.errors import SystemSetupError
from amfs.net.addresses import advertised
from amfs.net.guard import Handshakes, Refusals, answer_zap
from amfs.net.keys import Keys

FRAME_BYTES_MAX = 256 << 20
_FRAMES_PER_TURN = 1000  # received from one socket before the loop gets its turn
_HIGH_WATER = 2000  # frames in a socket; a link's window and its resends stay below
_READABLE = (int(zmq.POLLIN), int(zmq.POLLIN | zmq.POLLOUT))
_MONITOR_EVENT = struct.Struct("=HI")  # event, value: read here because zmq.utils.monitor imports asyncio, a tenth of a node's start
_END_S = 1.0  # the last frames leave in less
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"


def make_keys() -> Keys:
    """New CURVE key pairs, and a key for data connections, for a session. Raises SystemSetupError if this libzmq has no CURVE."""
    try:
        server, client = zmq.curve_keypair(), zmq.curve_keypair()
    except zmq.ZMQError as error:
        raise SystemSetupError(f"this ZeroMQ library cannot make keys ({error}); install pyzmq from its wheel") from None
    server_public, server_secret, client_public, client_secret = (key.decode() for key in (*server, *client))
    return Keys(server_public, server_secret, client_public, client_secret, os.urandom(32))


class Channel(NamedTuple):
    """A socket to send on, its descriptor, and the socket that tells of its failures."""

    socket: zmq.Socket[bytes]
    descriptor: int
    monitor: zmq.Socket[bytes] | None = None


class HungUpError(Exception):
    """The client to whom something was sent is no longer there."""


class Sockets:
    """One ROUTER for each way in, one DEALER for each peer that is dialled."""

    def __init__(self, keys: Keys | None, refusals: Refusals, arrived: Callable[[bytes, Channel | None, bytes], None]) -> None:
        """``read`` calls ``arrived(frame, router, identity)``: the last two tell how to answer, None and nothing if it came on a DEALER."""
        self.endpoints: tuple[str, ...] = ()  # where others reach us, best first
        self._keys = keys
        self._refusals = refusals
        self._refused = Counter[str]()  # endpoint -> handshakes with it that failed
        self._arrived = arrived
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, min(65536, self._context.get(zmq.SOCKET_LIMIT)))
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], bool]] = {}  # zmq descriptor -> reads what is there, returns whether more is
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        self._ready: dict[int, None] = {}  # zmq descriptors to read in the next read()
        self._sent_on: dict[int, None] = {}  # zmq descriptors whose edge a send may have swallowed
        self._bound_files: list[str] = []
        self._local: zmq.Socket[bytes] | None = None  # listens on these

    # ── the ways in ────────────────────────────────────────────────────────────────────────────────

    def listen(self, endpoints: Sequence[str]) -> None:
        """Raises SystemSetupError if an endpoint cannot be bound, ValueError if it is tcp and there are no keys."""
        local = [endpoint for endpoint in endpoints if endpoint.startswith("ipc://")]
        remote = [endpoint for endpoint in endpoints if endpoint.startswith("tcp://")]
        if odd := set(endpoints) - set(local) - set(remote):
            raise SystemSetupError(f"cannot listen on {', '.join(sorted(odd))}: only ipc:// and tcp:// endpoints")
        if local:
            self._local = self._router().socket
            self._bound_files = [endpoint.removeprefix("ipc://") for endpoint in local]
            for path in self._bound_files:  # a killed process has left its own there
                self._listen_locally(path)
            self.endpoints += tuple(local)
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
                self._bind(router, endpoint)
                bound = router.get(zmq.LAST_ENDPOINT)
                assert isinstance(bound, bytes)
                self.endpoints += (advertised(bound.decode().rstrip("\0")),)

    def listen_again(self) -> None:
        """On the sockets that are files, where these are not there. Raises SystemSetupError."""
        for path in self._bound_files:
            if not os.path.exists(path):
                self._listen_locally(path)  # a first binding is not undone: that would remove the new file, some time later

    def _listen_locally(self, path: str) -> None:
        assert self._local is not None
        self._bind(self._local, f"ipc://{path}")
        os.chmod(path, 0o600)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.SNDHWM, _HIGH_WATER)
        socket.set(zmq.RCVHWM, _HIGH_WATER)
        socket.set(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        return socket

    def _router(self) -> Channel:
        router = self._socket(zmq.ROUTER)
        router.set(zmq.ROUTER_MANDATORY, 1)  # so that we learn when a client has gone
        router.set(zmq.BACKLOG, 1024)
        router.set(zmq.TCP_KEEPALIVE, 1)
        channel = Channel(router, self._descriptor(router))
        self._register(router, lambda: self._read_router(channel))
        return channel

    def _bind(self, router: zmq.Socket[bytes], endpoint: str) -> None:
        try:
            router.bind(endpoint)
        except zmq.ZMQError as error:
            raise SystemSetupError(f"cannot listen on {endpoint}: {error}") from None

    def _stranger(self, handshakes: Handshakes, event: int, value: int, endpoint: str) -> None:
        """An event of our TCP port: log who is turned away (the ZAP handler does that for keys of clients)."""
        refused = event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        if event == zmq.EVENT_ACCEPTED:
            handshakes.accepted(value)
        elif refused or event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_HANDSHAKE_FAILED_AUTH):
            handshakes.ended()
        elif event == zmq.EVENT_DISCONNECTED:
            refused = handshakes.disconnected(value)
        if refused:
            text = f"refused a stranger on {endpoint}: does not speak our protocol, or has other keys"
            self._refusals.add(f"stranger {endpoint}", text)

    def _answer_zap(self, zap: zmq.Socket[bytes], public_key: bytes) -> bool:
        try:
            request = zap.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        reply, refused = answer_zap(request, public_key)
        if refused:
            self._refusals.add(f"key {refused}", f"refused a peer at {refused}: its key is not this session's")
        zap.send_multipart(reply, zmq.NOBLOCK)
        return True

    # ── the ways out ───────────────────────────────────────────────────────────────────────────────

    def dial(self, endpoint: str, connected: Callable[[], None] | None) -> Channel | None:
        """A DEALER to ``endpoint``; None if there are no keys for it. ``connected``, of a client that dials tcp, is called each time when
        the connection is there; the log then also says if the other side does not let us in."""
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
            if connected is not None:
                monitor = self._monitor(dealer, lambda *event: self._changed(connected, *event))
        try:
            dealer.connect(endpoint)
        except zmq.ZMQError as error:
            self._refusals.add(endpoint, f"cannot connect to {endpoint}: {error}")
        return Channel(dealer, self._register(dealer, lambda: self._read_dealer(dealer)), monitor)

    def hang_up(self, channel: Channel) -> None:
        """Close a channel that was dialled."""
        if channel.monitor is not None:
            self._unregister(self._descriptor(channel.monitor))
            channel.socket.disable_monitor()
            channel.monitor.close(0)  # or the context never ends
        self._unregister(channel.descriptor)
        channel.socket.close()

    def _changed(self, connected: Callable[[], None], event: int, value: int, endpoint: str) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            connected()
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_AUTH):
            self._refused[endpoint] += 1
            # Without a word of that process the first may have been cut off by its end.
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH or self._refused[endpoint] == 2:
                text = f"{endpoint} refused us: its keys are not those of this session file"
                self._refusals.add(f"refused us {endpoint}", text)

    def send(self, channel: Channel, identity: bytes, frame: bytes | bytearray) -> bool:
        """Send a frame, on a ROUTER to ``identity``. False: no room, it is as good as lost on the way. Raises HungUpError."""
        self._sent_on[channel.descriptor] = None  # also if it fails: a frame for a client that has hung up may swallow an edge as well
        try:
            if identity:
                channel.socket.send_multipart((identity, frame), zmq.NOBLOCK, copy=len(frame) < 65536)
            else:
                channel.socket.send(frame, zmq.NOBLOCK, copy=len(frame) < 65536)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            raise HungUpError from None
        return True

    # ── watching and reading ───────────────────────────────────────────────────────────────────────

    @staticmethod
    def _descriptor(socket: zmq.Socket[bytes]) -> int:
        descriptor = socket.get(zmq.FD)
        assert isinstance(descriptor, int)
        return descriptor

    def _register(self, socket: zmq.Socket[bytes], reader: Callable[[], bool]) -> int:
        descriptor = self._descriptor(socket)
        self._readers[descriptor] = reader
        self._sockets[descriptor] = socket
        self._ready[descriptor] = None  # look once: frames that arrived before show no edge
        self._epoll.register(descriptor, select.EPOLLIN)
        return descriptor

    def _unregister(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        del self._readers[descriptor], self._sockets[descriptor]
        self._ready.pop(descriptor, None)
        self._sent_on.pop(descriptor, None)

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

    def watch(self, descriptor: int) -> None:
        """Let ``poll`` also return when this descriptor is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable when ``poll`` would return; silent while ``pending()`` is true."""
        return self._epoll.fileno()

    def pending(self) -> bool:
        """Whether frames wait that no descriptor shows."""
        # Sending handles a socket's internal signals, so that the descriptor may stay silent although messages came.
        for descriptor in self._sent_on:
            if self._sockets[descriptor].get(zmq.EVENTS) in _READABLE:
                self._ready[descriptor] = None
        self._sent_on.clear()
        return bool(self._ready)

    def poll(self, timeout_s: float) -> list[int]:
        """Wait for frames or watched descriptors, at most ``timeout_s``. Returns the watched ones that are readable."""
        if self.pending():
            timeout_s = 0.0
        watched = []
        for descriptor, _ in self._epoll.poll(max(0.0, timeout_s)):
            if descriptor in self._readers:
                self._ready[descriptor] = None
            else:
                watched.append(descriptor)
        return watched

    def read(self) -> None:
        """Hand over what ``poll`` saw arrive."""
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

    def _read_router(self, router: Channel) -> bool:
        try:
            parts = router.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(parts) == 2:
            self._arrived(parts[1], router, parts[0])
        else:
            self._refusals.add(f"frames {len(parts)}", f"refused a message of {len(parts)} frames")
        return True

    def _read_dealer(self, dealer: zmq.Socket[bytes]) -> bool:
        try:
            parts = dealer.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(parts) == 1:
            self._arrived(parts[0], None, b"")
        return True

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def close(self, talking: Collection[Channel]) -> None:
        """Close everything at once. ``talking``: channels at whose other end somebody is."""
        sockets = {id(channel.socket) for channel in talking}
        for socket in self._sockets.values():
            # A moment for what the I/O thread has in hand, if somebody is there: a lone DEALER would wait for its peer in vain.
            is_router = socket.get(zmq.TYPE) == zmq.ROUTER
            socket.close(100 if is_router or id(socket) in sockets else 0)
        # A signal may have interrupted the making of a socket. Nobody can close that one, and the context would wait for it for ever.
        ending = threading.Thread(target=self._context.destroy, args=(0,), daemon=True)
        ending.start()
        ending.join(_END_S)
        self._epoll.close()
        for path in self._bound_files:
            try:
                os.unlink(path)
            except OSError:
                continue
