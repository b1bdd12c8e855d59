"""The data plane when things go wrong: peers that die, stall, lie or are strangers. Every wait ends, and nothing is harmed."""

from __future__ import annotations

import contextlib
import errno
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from data_handshake import HEAD, HELLO, KEY, MAGIC, OK, accept, challenge_to, connect, hello
from descriptors import open_descriptors
from fsio_nodes import LOCAL, PARTITIONS, REMOTE, REMOTE_CLOSED, STRIPED, WHOLE, Nodes
from waiting import until

from amfs._native import Io, IoHandle

STRIPE = 65536
WRITE, REPLY_BYTES = 2, 24  # csrc/data/peers/wire.h

SERVER = """
import sys, time
from amfs._native import Io
io = Io(1, sys.argv[1], "127.0.0.1", key=bytes.fromhex(sys.argv[2]))
io.set_peer(0, "", 0)
io.set_table([0, 1])
if len(sys.argv) > 3:
    handle = io.open(int(sys.argv[3]), 0, writing=True, create=True)
    handle.write(b"from another process", 0)
print(io.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def nodes(root: Path) -> Iterator[Nodes]:
    it = Nodes(root, 2, stall_ms=1000)
    yield it
    it.stop()


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def start(processes: list[subprocess.Popen[str]], root: Path, *more: str) -> int:
    """Node 1 in a process of its own; its port."""
    root.mkdir(exist_ok=True)
    arguments = [sys.executable, "-c", SERVER, str(root), KEY.hex(), *more]
    processes.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    output = processes[-1].stdout
    assert output is not None
    return int(output.readline())


def freeze(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    until(lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()))


def beside(processes: list[subprocess.Popen[str]], root: Path, *more: str, listen: str = "", stall_ms: int = 0) -> Io:
    """Node 0, here, which knows node 1 as ``start`` starts it; partitions belong to one and the other."""
    (root / "0").mkdir()
    io = Io(0, str(root / "0"), listen, key=KEY)
    if stall_ms:
        io.set_stall_ms(stall_ms)
    io.set_table([0, 1])
    io.set_peer(1, "127.0.0.1", start(processes, root / "1", *more))
    return io


def fails(call: Callable[[], object], *numbers: int, seconds: float = 5.0) -> None:
    """It raises one of these errors, in time."""
    began = time.monotonic()
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno in numbers, caught.value
    assert time.monotonic() - began < seconds


# ── peers that die ─────────────────────────────────────────────────────────────────────────────────


def test_a_killed_peer_is_eio_and_comes_back_elsewhere(root: Path, processes: list[subprocess.Popen[str]]) -> None:
    io = beside(processes, root, stall_ms=3000)
    data = random.Random(1).randbytes(20 * STRIPE)
    handle = io.open(2, STRIPED, stripe=STRIPE, writing=True)
    handle.write(data, 0)
    handle.flush()
    processes[0].kill()
    processes[0].wait()
    fails(lambda: handle.read(len(data), 0), errno.EIO)
    handle.write(data, 0)  # behind
    fails(handle.flush, errno.EIO)
    handle.flush()  # told once
    io.set_peer(1, "127.0.0.1", start(processes, root / "1"))  # its store outlived it
    assert handle.read(len(data), 0) == data
    handle.close()
    io.stop()


def test_forgetting_a_peer_wakes_those_who_wait_for_it(root: Path, processes: list[subprocess.Popen[str]]) -> None:
    io = beside(processes, root, "5")
    remote, striped = io.open(5, REMOTE, 1), io.open(6, STRIPED, stripe=STRIPE, size=20 * STRIPE)
    assert remote.read(100, 0) == b"from another process"
    freeze(processes[0])
    ends: list[object] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            ends.append(call())
        except OSError as error:
            ends.append(error.errno)

    waiting = [threading.Thread(target=wait, args=(call,)) for call in (lambda: remote.read(9, 0), lambda: striped.read(20 * STRIPE, 0))]
    for thread in waiting:
        thread.start()
    io.fetch(1, 99, 1, 5)
    time.sleep(0.3)
    assert not ends
    began = time.monotonic()
    io.forget_peer(1)
    for thread in waiting:
        thread.join(10)
    assert ends == [errno.EIO, errno.EIO] and time.monotonic() - began < 2
    until(lambda: io.take() == [(0, 1, 99, 5, errno.EIO)])
    fails(lambda: io.open(7, REMOTE, 1), errno.EIO, seconds=1)
    fails(lambda: striped.read(20 * STRIPE, 0), errno.EIO, seconds=1)
    remote.close()
    striped.close()
    io.stop()


def test_a_peer_that_stalls_is_given_up(root: Path, processes: list[subprocess.Popen[str]]) -> None:
    io = beside(processes, root, "5", stall_ms=500)
    remote = io.open(5, REMOTE, 1)
    freeze(processes[0])
    fails(lambda: remote.read(9, 0), errno.EIO, seconds=4)
    fails(lambda: io.open(6, STRIPED, stripe=STRIPE, size=4 * STRIPE).read(4 * STRIPE, 0), errno.EIO, seconds=8)
    processes[0].send_signal(signal.SIGCONT)
    assert remote.read(9, 0) == b"from anot"
    remote.close()
    io.stop()


@pytest.mark.parametrize("written", [False, True])
def test_a_file_is_opened_while_it_is_laid_in_stripes(root: Path, processes: list[subprocess.Popen[str]], written: bool) -> None:
    """The other node takes no stripe for a while. Opening does not wait for that: a mount does it with the lock of all files held."""
    io = beside(processes, root)
    data = random.Random(1).randbytes(20 * STRIPE)
    writer = io.open(1 << 40 | 2, LOCAL, writing=True, create=True)
    writer.write(data, 0)
    if not written:
        writer.close()
    freeze(processes[0])
    io.restripe(3, 1 << 40 | 2, STRIPE)
    time.sleep(0.3)
    handles = [io.open(1 << 40 | 2, LOCAL, writing=writing) for writing in (False, True)]
    assert not select.select([io.fd], [], [], 0)[0], "the stripes are not there yet"
    processes[0].send_signal(signal.SIGCONT)
    assert select.select([io.fd], [], [], 20)[0]
    assert [event[4] for event in io.take()] == [0]
    assert [handle.read(len(data) + 1, 0) for handle in handles] == [data, data]
    io.stop()


def test_a_writer_that_stalls_holds_up_no_other(root: Path) -> None:
    """A node sends half of a stripe and then nothing. The stripe moves away meanwhile, and others write theirs."""
    nodes = Nodes(root, 2)
    ino = nodes.write(0, bytes(4 * STRIPE), stripe=STRIPE)
    index = next(iter(nodes.parts(0, ino)))
    slow, _ = connect(nodes.io[0].port, 0)
    with slow:
        slow.sendall(request(WRITE, ino=ino, index=index, numbers=(0, STRIPE, 0)) + bytes(STRIPE // 2))
        time.sleep(0.2)
        nodes.io[0].set_moving(list(range(PARTITIONS)), True)
        nodes.io[1].fetch_part(7, ino, index, 0)
        assert nodes.done(1)[4] == 0
        slow.sendall(bytes(STRIPE - STRIPE // 2))
        answer = b""
        while len(answer) < REPLY_BYTES and (more := slow.recv(1 << 16)):
            answer += more
        assert struct.unpack_from("<I", answer)[0] == errno.ESTALE, "it came too late, and is told so"
    nodes.stop()


def test_stopping_wakes_those_who_wait(root: Path, processes: list[subprocess.Popen[str]]) -> None:
    io = beside(processes, root, "5", listen="127.0.0.1")
    remote = io.open(5, REMOTE, 1)
    freeze(processes[0])
    late = threading.Timer(0.3, io.stop)
    late.start()
    fails(lambda: remote.read(9, 0), errno.ECANCELED)
    late.join()
    fails(lambda: io.open(9, LOCAL, writing=True, create=True), errno.ECANCELED)
    close_quietly(remote)


def close_quietly(handle: IoHandle) -> None:
    with contextlib.suppress(OSError):
        handle.close()


def test_a_dead_user_no_longer_holds_a_file(nodes: Nodes) -> None:
    ino = nodes.write(0, b"content")
    here = nodes.io[0].open(ino, LOCAL, writing=True)
    handle = nodes.io[1].open(ino, REMOTE, 0, writing=True)
    here.close()
    assert nodes.io[0].open_count(ino) == (0, 1)
    nodes.io[0].forget_peer(1)
    assert nodes.io[0].open_count(ino) == (0, 0)
    assert nodes.done(0) == (REMOTE_CLOSED, 0, ino, 7, 0)
    fails(lambda: handle.write(b"x", 0), errno.EIO, errno.EACCES)  # it may not come in any more
    close_quietly(handle)
    assert nodes.read(0, ino, LOCAL, 7) == b"content"


def test_who_wants_to_write_comes_too_late_when_nobody_writes_there_any_more(nodes: Nodes) -> None:
    """Nobody would take notice of what it writes."""
    ino = nodes.write(0, b"content")
    fails(lambda: nodes.io[1].open(ino, REMOTE, 0, writing=True), errno.ESTALE)
    reader = nodes.io[1].open(ino, REMOTE, 0)
    here = nodes.io[0].open(ino, LOCAL, writing=True)
    writer = nodes.io[1].open(ino, REMOTE, 0, writing=True)
    here.close()
    writer.write(b"CON", 0)
    assert reader.read(7, 0) == b"CONtent"
    close_quietly(writer)
    fails(lambda: nodes.io[1].open(ino, REMOTE, 0, writing=True), errno.ESTALE)
    assert reader.read(7, 0) == b"CONtent"
    close_quietly(reader)
    assert nodes.io[0].open_count(ino) == (0, 0)


def test_a_handle_is_closed_under_a_read(root: Path, processes: list[subprocess.Popen[str]]) -> None:
    io = beside(processes, root, "5")
    remote = io.open(5, REMOTE, 1)
    freeze(processes[0])
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(remote.read(100, 0)))
    reader.start()
    time.sleep(0.2)
    remote.close()
    remote.close()
    fails(lambda: remote.read(1, 0), errno.EBADF, seconds=1)
    assert not got and io.open_count(5) == (1, 0)
    processes[0].send_signal(signal.SIGCONT)
    reader.join(10)
    assert got == [b"from another process"]
    until(lambda: io.open_count(5) == (0, 0))
    io.stop()


def test_nobody_listens(root: Path) -> None:
    (root / "0").mkdir()
    io = Io(0, str(root / "0"), "", key=KEY)
    io.set_table([1])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        io.set_peer(1, "127.0.0.1", closed.getsockname()[1])
        fails(lambda: io.open(9, REMOTE, 1), errno.EIO)
        reader = io.open(9, STRIPED, stripe=STRIPE, size=100)
        fails(lambda: reader.read(100, 0), errno.EIO)
        assert reader.stat()[0] == 100
    io.set_peer(1, "host.invalid", 1)
    fails(lambda: io.open(9, REMOTE, 1), errno.EIO, seconds=30)
    reader.close()
    io.stop()


def _nothing(peer: socket.socket) -> None:
    peer.recv(HELLO.size)


def _another_protocol(peer: socket.socket) -> None:
    peer.recv(HELLO.size)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)


def _another_version(peer: socket.socket) -> None:
    peer.recv(HELLO.size)
    peer.sendall(HEAD.pack(MAGIC, 9, 0) + bytes(64))


def _another_key(peer: socket.socket) -> None:
    peer.sendall(challenge_to(peer.recv(HELLO.size), bytes(32)))


def _an_echo(peer: socket.socket) -> None:
    """It sends back what it hears."""
    peer.sendall(peer.recv(HELLO.size))
    peer.sendall(peer.recv(100))


def _answer(lie: bytes) -> Callable[[socket.socket], None]:
    def say(peer: socket.socket) -> None:
        accept(peer)
        peer.recv(48)
        peer.sendall(lie)

    return say


@pytest.mark.parametrize(
    "lie",
    [
        _nothing,
        _another_protocol,
        _another_version,
        _another_key,
        _an_echo,
        _answer(b""),
        _answer(struct.pack("<IIQQ", 0, 0, 1 << 60, 0)),
        _answer(struct.pack("<IIQQ", 0, 0, 100, 0) + b"short"),
        _answer(b"\xff" * 500),
    ],
    ids=["nothing", "another protocol", "another version", "another key", "echo", "no answer", "too much", "too little", "garbage"],
)
def test_a_server_that_lies_is_an_error(root: Path, lie: Callable[[socket.socket], None]) -> None:
    (root / "0").mkdir()
    io = Io(0, str(root / "0"), "", key=KEY)
    io.set_stall_ms(2000)
    io.set_table([1])
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                peer, _ = server.accept()
                with peer:
                    peer.settimeout(2)
                    lie(peer)
                    peer.recv(48)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        thread = threading.Thread(target=serve)
        thread.start()
        io.set_peer(1, "127.0.0.1", server.getsockname()[1])
        reader = io.open(9, STRIPED, stripe=STRIPE, size=100)
        try:
            with pytest.raises(OSError):
                reader.read(100, 0)
        finally:
            reader.close()
            io.stop()
            stop.set()
            thread.join(10)


# ── strangers and garbage ──────────────────────────────────────────────────────────────────────────


def request(
    op: int, *, flag: int = 0, zero: int = 0, stripe: int = 0, ino: int = 5, index: int = 0, numbers: tuple[int, ...] = (0, 0, 0)
) -> bytes:
    return struct.pack("<BBHIQqQQQ", op, flag, zero, stripe, ino, index, *numbers)


def talk(port: int, *messages: bytes, lane: int = 0, quiet: float = 0.5) -> bytes:
    """As node 1 to node 0: send all, then read until it is closed or quiet."""
    got = b""
    peer, entered = connect(port, 0, lane=lane)
    assert entered == OK
    with peer, contextlib.suppress(ConnectionError, TimeoutError):
        for message in messages:
            peer.sendall(message)
        peer.settimeout(quiet)
        while piece := peer.recv(65536):
            got += piece
    return got


def test_a_member_can_ask(nodes: Nodes) -> None:
    """The bytes of the protocol, as docs say them."""
    ino = nodes.write(0, b"content")
    answer = talk(nodes.io[0].port, request(1, ino=ino, index=WHOLE, numbers=(3, 100, 0)))
    assert answer == struct.pack("<IIQQ", 0, 0o600, 4, 7) + b"tent"


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize(
    "message",
    [
        request(0),
        request(99),
        request(1, zero=1, numbers=(0, 10, 0)),
        request(1, ino=0),
        request(1, index=-2),
        request(1, numbers=(1 << 63, 1, 0)),
        request(2, numbers=(0, (16 << 20) + 1, 0)),
        request(2, numbers=((1 << 64) - 1, 10, 0)),
        request(4, numbers=(5, 0, 0)),
        request(5, numbers=(0, 0, 0)),
        request(5, index=-1, numbers=(0, 10, 0)),
        request(6, flag=9),
        request(7, flag=9),
        request(32, numbers=(2, 0, 0)),
        request(34, numbers=(0, (512 << 10) + 1, 0)),
    ],
    ids=lambda message: f"op {message[0]}",
)
def test_what_makes_no_sense_closes_the_connection(nodes: Nodes, lane: int, message: bytes) -> None:
    began = time.monotonic()
    answer = talk(nodes.io[0].port, message, lane=lane, quiet=3)
    assert answer == b"" and time.monotonic() - began < 2


def test_random_requests_harm_nothing(nodes: Nodes) -> None:
    chance = random.Random(5)
    data = random.Random(1).randbytes(200_000)
    kept = nodes.write(0, data)  # its number is not among those that are asked about
    for turn in range(300):
        op = chance.choice([*range(9), *range(32, 41), 255])
        numbers = tuple(chance.choice([0, 1, 100, 70000, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]) for _ in range(3))
        message = request(
            op,
            flag=chance.choice([0, 1, 2, 3, 4, 255]),
            stripe=chance.choice([0, 1, 4096, 1 << 31]),
            ino=chance.choice([5, 6, 7]),
            index=chance.choice([-1, 0, 1, 1000, 1 << 62]),
            numbers=numbers,
        )
        if chance.random() < 0.3:
            message = bytes(byte ^ (1 << chance.randrange(8)) if chance.random() < 0.05 else byte for byte in message)
            if struct.unpack_from("<Q", message, 8)[0] == kept:
                continue
        talk(nodes.io[0].port, message, chance.randbytes(chance.randrange(3000)), lane=turn % 2, quiet=0.02)
    assert nodes.read(0, kept, LOCAL, len(data)) == data
    ino = nodes.write(1, data, stripe=4096)
    assert nodes.read(0, ino, STRIPED, len(data), stripe=4096) == data


def test_strangers_who_say_nothing_do_not_keep_others_out(nodes: Nodes) -> None:
    ino = nodes.write(0, b"content")
    before = open_descriptors()
    strangers = [socket.create_connection(("127.0.0.1", nodes.io[0].port), timeout=5) for _ in range(600)]
    strangers[-1].sendall(hello(0)[:31])
    nodes.io[1].fetch(1, ino, 0, 7)
    assert nodes.done(1)[4] == 0
    assert open_descriptors() - before < 600 + 256 + 20  # it keeps only some of them
    for stranger in strangers:
        stranger.close()
    until(lambda: open_descriptors() - before < 20)


def test_half_a_request_is_given_up(nodes: Nodes) -> None:
    peer, entered = connect(nodes.io[0].port, 0)
    with peer:
        assert entered == OK
        peer.sendall(request(1)[:20])
        began = time.monotonic()
        assert peer.recv(1) == b"" and time.monotonic() - began < 5


def test_a_reader_that_does_not_take_its_bytes_is_given_up(nodes: Nodes) -> None:
    ino = nodes.write(0, bytes(30 << 20))
    peer, _ = connect(nodes.io[0].port, 0)
    with peer:
        peer.sendall(request(1, ino=ino, index=WHOLE, numbers=(0, 30 << 20, 0)))
        time.sleep(2.5)
        total = 0
        with contextlib.suppress(ConnectionError):
            while piece := peer.recv(1 << 20):
                total += len(piece)
        assert total < 30 << 20
    other = nodes.write(0, b"others are served")
    nodes.io[1].fetch(1, other, 0, 17)
    assert nodes.done(1)[4] == 0


# ── full ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_owner_is_enospc_at_flush_and_the_connection_stays(root: Path) -> None:
    nodes = Nodes(root, 2, [0, 256 << 10])
    ino = nodes.new()
    handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, writing=True)
    with pytest.raises(OSError) as caught:
        for i in range(40):
            handle.write(bytes([i]) * STRIPE, i * STRIPE)
        handle.flush()
    assert caught.value.errno == errno.ENOSPC
    assert nodes.io[1].usage()[0] <= 256 << 10
    handle.truncate(0)
    with contextlib.suppress(OSError):
        handle.flush()
    handle.write(b"small", 0)
    handle.close()
    assert nodes.io[0].usage()[0] + nodes.io[1].usage()[0] == 4096 == nodes.bytes_on_disk(0) + nodes.bytes_on_disk(1)
    big = nodes.write(0, bytes(300 << 10))
    nodes.io[1].fetch(1, big, 0, 300 << 10)
    assert nodes.done(1)[4] == errno.ENOSPC
    assert WHOLE not in nodes.parts(1, big)
    nodes.stop()


def test_a_close_that_fails_says_so_and_closes(root: Path) -> None:
    nodes = Nodes(root, 2, [0, 64 << 10])
    ino = nodes.new()
    handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, writing=True)
    handle.write(bytes(10 * STRIPE), 0)
    with pytest.raises(OSError) as caught:
        handle.close()
    assert caught.value.errno == errno.ENOSPC
    handle.close()
    assert nodes.io[0].open_count(ino) == (0, 0)
    nodes.stop()
