"""The transport over real sockets between real processes: it delivers, notices the dead, and strangers do no harm."""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from amfs.client.control import Client
from amfs.errors import ProtocolError, SessionError, SystemSetupError
from amfs.net import wire
from amfs.net.keys import Keys
from amfs.net.link import Limits, Packet
from amfs.net.records import NodeEntry, SessionRecord
from amfs.net.sockets import make_keys
from amfs.net.transport import Transport, random_client_id
from amfs.vocabulary.messages import PROTOCOL_VERSION, Blob, Content, Heartbeat, Message

PATIENCE_S = 30.0
SOON = Limits(give_up_s=1.0, resend_after_s=0.1, resend_max_s=0.2)


@pytest.fixture
def keys() -> Keys:
    return make_keys()


@pytest.fixture
def transports() -> Iterator[Callable[..., Transport]]:
    made: list[Transport] = []

    def make(*args: object, **kwargs: object) -> Transport:
        made.append(Transport(*args, **kwargs))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        transport.close()


class Peer:
    """A process that runs transport_peer.py."""

    def __init__(self, keys_file: Path, endpoint: str, own_id: int = 1) -> None:
        script = Path(__file__).with_name("transport_peer.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(own_id), endpoint, str(keys_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.endpoints = self.process.stdout.readline().split()
        assert self.endpoints, "the peer did not start"

    def end(self, kill: bool = False) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


@pytest.fixture
def peers(tmp_path: Path, keys: Keys) -> Iterator[Callable[[str], Peer]]:
    keys_file = tmp_path / "keys"
    keys_file.write_bytes(msgspec.json.encode(keys))
    made: list[Peer] = []

    def make(endpoint: str) -> Peer:
        made.append(Peer(keys_file, endpoint))
        return made[-1]

    yield make
    for peer in made:
        peer.end(kill=True)


def turn(transport: Transport, longest_s: float = 0.05) -> tuple[list[tuple[int, Message]], list[int]]:
    due = transport.next_timer()
    transport.poll(longest_s if due is None else min(longest_s, due - time.monotonic()))
    now = time.monotonic()
    got = transport.receive(now)
    down = transport.on_timer(now)
    transport.flush(now)
    return got, down


def spin(until: Callable[[], object], *transports: Transport, got: list[tuple[int, Message]] | None = None) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < end, "waited in vain"
        for transport in transports:
            messages, _ = turn(transport, 0.02)
            if got is not None:
                got.extend(messages)


def beats(got: list[tuple[int, Message]]) -> list[int]:
    return [message.epoch for _, message in got if isinstance(message, Heartbeat)]


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
@pytest.mark.parametrize("kind", ["node", "client"])
def test_everything_arrives_in_order(
    scheme: str, kind: str, tmp_path: Path, keys: Keys, peers: Callable[[str], Peer], transports: Callable[..., Transport]
) -> None:
    peer = peers(f"ipc://{tmp_path}/peer.ipc" if scheme == "ipc" else "tcp://127.0.0.1:0")
    transport = transports(0, keys, [f"ipc://{tmp_path}/own.ipc"]) if kind == "node" else transports(random_client_id(), keys)
    transport.connect(1, peer.endpoints)
    got: list[tuple[int, Message]] = []
    for number in range(500):
        transport.queue(1, Heartbeat(2 * number))
        if number % 3 == 0:
            got += turn(transport, 0.0)[0]
    spin(lambda: len(got) >= 500, transport, got=got)
    assert beats(got) == [2 * number + 1 for number in range(500)]
    assert {sender for sender, _ in got} == {1}
    assert transport.refusals.count == 0


def test_what_is_queued_in_one_turn_leaves_as_one_batch(tmp_path: Path, transports: Callable[..., Transport]) -> None:
    one, two = (transports(own, None, [f"ipc://{tmp_path}/{own}.ipc"]) for own in (0, 1))
    one.connect(1, two.endpoints)
    for number in range(100):
        one.queue(1, Heartbeat(number))
    got: list[tuple[int, Message]] = []
    spin(lambda: len(got) >= 100, one, two, got=got)
    assert beats(got) == list(range(100))
    assert two.counters["batches_received"] == 1


def test_a_large_message_arrives_whole(keys: Keys, peers: Callable[[str], Peer], transports: Callable[..., Transport]) -> None:
    peer = peers("tcp://127.0.0.1:0")
    transport = transports(random_client_id(), keys)
    transport.connect(1, peer.endpoints)
    content = Content(1, (Blob("a", 5_000_000, random.Random(1).randbytes(5_000_000)),))
    transport.queue(1, content)
    got: list[tuple[int, Message]] = []
    spin(lambda: got, transport, got=got)
    assert got == [(1, content)]


def test_a_killed_peer_is_reported_once(
    tmp_path: Path, keys: Keys, peers: Callable[[str], Peer], transports: Callable[..., Transport]
) -> None:
    peer = peers(f"ipc://{tmp_path}/peer.ipc")
    transport = transports(0, keys, limits=SOON)
    transport.connect(1, peer.endpoints)
    transport.queue(1, Heartbeat(0))
    got: list[tuple[int, Message]] = []
    spin(lambda: got, transport, got=got)
    peer.end(kill=True)
    transport.queue(1, Heartbeat(2))
    down: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while not down and time.monotonic() < end:
        down += turn(transport)[1]
    transport.queue(1, Heartbeat(4))
    for _ in range(5):
        down += turn(transport)[1]
    assert down == [1]
    assert transport.counters["lost"] == 2 and transport.backlog(1) == 0


def test_a_peer_started_anew_is_a_new_peer(
    tmp_path: Path, keys: Keys, peers: Callable[[str], Peer], transports: Callable[..., Transport]
) -> None:
    endpoint = f"ipc://{tmp_path}/peer.ipc"
    peer = peers(endpoint)
    transport = transports(0, keys)
    transport.connect(1, peer.endpoints)
    transport.queue(1, Heartbeat(0))
    got: list[tuple[int, Message]] = []
    spin(lambda: got, transport, got=got)
    peer.end(kill=True)
    transport.queue(1, Heartbeat(100))  # meant for the one that is dead
    transport.flush(time.monotonic())
    peers(endpoint)
    restarted: list[int] = []

    def some() -> list[int]:
        restarted.extend(transport.take_restarted())
        return restarted

    spin(some, transport, got=got)
    transport.queue(1, Heartbeat(200))
    spin(lambda: len(got) >= 2, transport, got=got)
    assert restarted == [1] and beats(got) == [1, 201]


def test_who_was_given_up_is_told(tmp_path: Path, transports: Callable[..., Transport]) -> None:
    one, two = (transports(number, None, [f"ipc://{tmp_path}/{number}.ipc"]) for number in (1, 2))
    one.connect(2, two.endpoints)
    two.connect(1, one.endpoints)
    one.queue(2, Heartbeat(1))
    got: list[tuple[int, Message]] = []
    spin(lambda: got, one, two, got=got)
    two.close_peer(1)
    one.queue(2, Heartbeat(2))
    refused: list[int] = []

    def some() -> list[int]:
        refused.extend(one.take_refused())
        return refused

    spin(some, one, two, got=got)
    one.queue(2, Heartbeat(3))
    turn(one)
    assert refused == [2] and beats(got) == [1] and one.backlog(2) == 0 and not one.take_refused()


class CuttingProxy:
    """Passes TCP on, and cuts the connection after a random number of bytes: those in flight are lost."""

    def __init__(self, target: str, cuts: int, seed: int) -> None:
        self.host, port = target.removeprefix("tcp://").rsplit(":", 1)
        self.port, self.cuts, self.random = int(port), cuts, random.Random(seed)
        self.cut = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while not self.stopping.is_set():
            if not select.select([self.listener], [], [], 0.05)[0]:
                continue
            near = self.listener.accept()[0]
            with near, socket.create_connection((self.host, self.port)) as far:
                left = self.random.randrange(2_000, 40_000) if self.cut < self.cuts else 1 << 60
                other = {near: far, far: near}
                while not self.stopping.is_set() and left > 0:
                    for ready in select.select(list(other), [], [], 0.05)[0]:
                        data = ready.recv(4096)
                        if not data:
                            left = 0
                        other[ready].sendall(data[: max(0, left)])
                        left -= len(data)
                if left < 0:
                    self.cut += 1

    def close(self) -> None:
        self.stopping.set()
        self.thread.join(PATIENCE_S)
        self.listener.close()


def test_nothing_is_lost_or_repeated_when_connections_break(
    keys: Keys, peers: Callable[[str], Peer], transports: Callable[..., Transport]
) -> None:
    peer = peers("tcp://127.0.0.1:0")
    proxy = CuttingProxy(peer.endpoints[0], cuts=6, seed=4)
    try:
        # A client, to which the peer cannot dial: it must say by itself that it is there again.
        transport = transports(random_client_id(), keys, limits=Limits(resend_after_s=0.1, resend_max_s=0.3))
        transport.connect(1, [proxy.endpoint])
        got: list[tuple[int, Message]] = []
        for number in range(2000):
            transport.queue(1, Heartbeat(2 * number))
            if number % 5 == 0:
                got += turn(transport, 0.001)[0]
        spin(lambda: len(got) >= 2000, transport, got=got)
        for _ in range(5):
            got += turn(transport)[0]
        assert beats(got) == [2 * number + 1 for number in range(2000)]
        assert proxy.cut >= 3, "the proxy did not cut: the test tests nothing"
    finally:
        proxy.close()


# ── strangers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server(keys: Keys, transports: Callable[..., Transport]) -> Transport:
    return transports(0, keys, ["tcp://127.0.0.1:0"])


def assert_unharmed(server: Transport, keys: Keys, transports: Callable[..., Transport]) -> None:
    """An honest client is served as ever."""
    client = transports(random_client_id(), keys)
    client.connect(0, server.endpoints)
    client.queue(0, Heartbeat(42))
    got: list[tuple[int, Message]] = []
    spin(lambda: got, server, client, got=got)
    assert got == [(client.own_id, Heartbeat(42))]


def raw_dealer(server: Transport, keys: Keys) -> zmq.Socket[bytes]:
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    dealer.set(zmq.CURVE_SERVERKEY, keys.server_public.encode())
    dealer.set(zmq.CURVE_PUBLICKEY, keys.client_public.encode())
    dealer.set(zmq.CURVE_SECRETKEY, keys.client_secret.encode())
    dealer.connect(server.endpoints[0])
    return dealer


@pytest.mark.parametrize("wrong", ["client", "server"])
def test_wrong_keys_are_refused_with_one_line(
    wrong: str, server: Transport, keys: Keys, transports: Callable[..., Transport], caplog: pytest.LogCaptureFixture
) -> None:
    other = make_keys()
    if wrong == "client":
        bad = msgspec.structs.replace(keys, client_public=other.client_public, client_secret=other.client_secret)
    else:
        bad = msgspec.structs.replace(keys, server_public=other.server_public)
    stranger = transports(random_client_id(), bad)
    stranger.connect(0, server.endpoints)
    stranger.queue(0, Heartbeat(1))
    with caplog.at_level(logging.WARNING):
        got: list[tuple[int, Message]] = []
        spin(lambda: server.refusals.count and stranger.refusals.count, server, stranger, got=got)
        for _ in range(20):  # it may try again and again
            got += turn(server)[0] + turn(stranger, 0.0)[0]
        assert got == []
        lines = [record.getMessage() for record in caplog.records if "refused us" not in record.getMessage()]
    assert len(lines) == 1 and "key" in lines[0]
    assert_unharmed(server, keys, transports)


def test_a_client_with_wrong_keys_learns_why(server: Transport, keys: Keys) -> None:
    entry = NodeEntry(0, server.endpoints, "elsewhere", 0, 0)
    session = SessionRecord(name="other", keys=make_keys(), created=0.0, host="elsewhere", nodes=(entry,))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            turn(server)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with Client(session) as client, pytest.raises(SessionError, match=r"session other does not answer within 1 s; .*its keys are not"):
            client.view(1.0)
    finally:
        stop.set()
        thread.join()


def test_another_protocol_version_is_refused_and_told_ours(
    server: Transport, keys: Keys, transports: Callable[..., Transport], caplog: pytest.LogCaptureFixture
) -> None:
    dealer = raw_dealer(server, keys)
    old = wire.HEADER.pack(wire.MAGIC, PROTOCOL_VERSION + 1, 0, 1 << 40, 0, 1, 0, 0, 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            dealer.send(old)
        spin(lambda: server.refusals.count >= 3 and dealer.poll(10), server)
        version = wire.HEADER.unpack_from(dealer.recv())[1]
    assert version == PROTOCOL_VERSION
    assert [record.getMessage() for record in caplog.records] == [
        f"refused a peer's frame: protocol version {PROTOCOL_VERSION + 1}, this is version {PROTOCOL_VERSION}: "
        "both sides must run the same amfs"
    ]
    dealer.close()
    assert_unharmed(server, keys, transports)


def test_garbage_frames_are_refused(
    server: Transport, keys: Keys, transports: Callable[..., Transport], caplog: pytest.LogCaptureFixture
) -> None:
    dealer = raw_dealer(server, keys)
    good = bytes(wire.encode(Packet(1 << 40, 0, 7, server.incarnation, 1, 0, [Heartbeat(1)])))
    chance = random.Random(5)
    garbage = [b"", b"x", os.urandom(1000), good[:-1], good + b"\0", good[:56], good[:56] + b"\x91\x92\xcc\xff\x01"]
    with caplog.at_level(logging.WARNING):
        for frame in garbage * 3:
            dealer.send(frame)
        dealer.send_multipart([good, good])
        dealer.send(bytes(wire.encode(Packet(0, 0, 7, server.incarnation, 1, 0, [Heartbeat(1)]))))  # claims to be the server itself
        spin(lambda: server.refusals.count >= 3 * len(garbage) + 2, server)
        assert 1 <= len(caplog.records) <= 8  # one a kind, not one a frame
    for _ in range(500):  # and what does decode, but makes no sense, is survived
        fields = [chance.choice([0, 1, 7, 1 << 40, server.incarnation, 2**64 - 1]) for _ in range(6)]
        fields[1] = 0
        dealer.send(wire.HEADER.pack(wire.MAGIC, PROTOCOL_VERSION, 0, *fields) + (good[56:] if fields[4] else b""))
    for _ in range(20):
        turn(server, 0.02)
    dealer.close()
    assert_unharmed(server, keys, transports)


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 8, b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(60), b""]
)
def test_who_speaks_something_else_is_refused(
    junk: bytes, server: Transport, keys: Keys, transports: Callable[..., Transport], caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.endpoints[0].removeprefix("tcp://").split(":")
    with caplog.at_level(logging.WARNING), socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(junk)
        if junk:
            spin(lambda: server.refusals.count, server)
        assert_unharmed(server, keys, transports)  # also while the stranger holds its connection
    assert len(caplog.records) <= 1


# ── set-up ─────────────────────────────────────────────────────────────────────────────────────────


def test_local_sockets_are_private_and_removed(tmp_path: Path, transports: Callable[..., Transport]) -> None:
    transport = transports(0, None, [f"ipc://{tmp_path}/own.ipc"])
    assert stat.S_IMODE((tmp_path / "own.ipc").stat().st_mode) == 0o600
    transport.close()
    assert not (tmp_path / "own.ipc").exists()


def test_endpoints_that_cannot_be_bound_are_named(transports: Callable[..., Transport], keys: Keys) -> None:
    with pytest.raises(SystemSetupError, match="cannot listen on ipc:///nowhere/at/all"):
        transports(0, None, ["ipc:///nowhere/at/all"])
    with pytest.raises(SystemSetupError, match=r"cannot listen on http://x: only ipc:// and tcp://"):
        transports(0, None, ["http://x"])
    taken = transports(0, keys, ["tcp://127.0.0.1:0"])
    with pytest.raises(SystemSetupError, match="Address already in use"):
        transports(1, keys, list(taken.endpoints))


def test_a_message_to_oneself_is_a_fault(transports: Callable[..., Transport]) -> None:
    with pytest.raises(ProtocolError, match="to ourselves"):
        transports(3).queue(3, Heartbeat(1))


def test_an_outer_loop_is_woken(tmp_path: Path, transports: Callable[..., Transport]) -> None:
    one, two = (transports(own, None, [f"ipc://{tmp_path}/{own}.ipc"]) for own in (0, 1))
    one.connect(1, two.endpoints)
    outer = select.epoll()
    outer.register(two.fileno(), select.EPOLLIN)
    one.queue(1, Heartbeat(7))
    got: list[tuple[int, Message]] = []
    end = time.monotonic() + PATIENCE_S
    while not got and time.monotonic() < end:
        turn(one, 0.0)
        if two.pending() or outer.poll(0.02):
            got += turn(two, 0.0)[0]
    outer.close()
    assert got == [(0, Heartbeat(7))]


def test_an_answer_that_cannot_be_sent_swallows_no_message(tmp_path: Path, transports: Callable[..., Transport]) -> None:
    """To find that a client has hung up a socket handles its signals, also those of other messages: nothing else shows them."""
    node, other = (transports(own, None, [f"ipc://{tmp_path}/{own}.ipc"]) for own in (0, 1))
    client = transports(random_client_id())
    client.connect(0, node.endpoints)
    other.connect(0, node.endpoints)
    client.queue(0, Heartbeat(1))
    other.queue(0, Heartbeat(2))
    got: list[tuple[int, Message]] = []
    spin(lambda: len(got) == 2, node, other, client, got=got)
    spin(lambda: not other.next_timer() and not node.next_timer(), node, other, client)  # all is acknowledged
    client.close()
    for _ in range(20):
        turn(node, 0.02)  # it hears that the client has hung up
    other.queue(0, Heartbeat(3))
    other.flush(time.monotonic())
    time.sleep(0.3)  # it lies in the node's socket, and the node has not looked
    node.queue(client.own_id, Heartbeat(4))
    node.flush(time.monotonic())
    assert node.pending()
    assert beats(node.receive(time.monotonic())) == [3]
