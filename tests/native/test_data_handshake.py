"""Connections to a data server: strangers at its port, with the wrong key, with bytes that they have heard, slow, or in crowds."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_handshake import (
    CHALLENGE_BYTES,
    CLIENT,
    GUARD_S,
    HEAD,
    HELLO,
    KEY,
    MAGIC,
    NOT_ME,
    NOT_MEMBER,
    OK,
    PROOF_BYTES,
    VERSION,
    WRONG_KEY,
    WRONG_VERSION,
    connect,
    exactly,
    hello,
    proof,
    status,
)
from descriptors import open_descriptors
from fsio_nodes import WHOLE, Nodes
from hypothesis import given
from hypothesis import strategies as st

from amfs._native import Io, hmac_sha256, read_stored

ME, INCARNATION, MEMBER, MEMBER_INCARNATION = 4, 44, 1, 11
READ = 1
OTHER_KEY = bytes(32)


@pytest.fixture
def server(root: Path) -> Iterator[Io]:
    """Node 4, which knows node 1 for a member; its store has one file."""
    for place in ("parts", "store/7"):
        (root / place).mkdir(parents=True)
    (root / "store" / "7" / "file").write_bytes(b"stored")
    io = Io(ME, str(root / "parts"), "127.0.0.1", key=KEY, incarnation=INCARNATION, store=str(root / "store"))
    io.set_stall_ms(2000)
    io.set_peer(MEMBER, "", 0, MEMBER_INCARNATION)
    yield io
    io.stop()


def read(server: Io, path: str = "7/file", size: int = 6, *, key: bytes = KEY, node: int = ME, incarnation: int = INCARNATION) -> bytes:
    return read_stored(key, CLIENT + 9, node, incarnation, "127.0.0.1", server.port, path, size)


def request(path: bytes, *, size: int = 6, ino: int = 0, index: int = WHOLE, op: int = READ) -> bytes:
    return struct.pack("<BBHIQqQQQ", op, 0, 0, 0, ino, index, 0, size, len(path)) + path


def is_closed(line: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return line.recv(1) == b""
    return True


# ── the primitive ──────────────────────────────────────────────────────────────────────────────────


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), max_size=4))
def test_hmac_is_that_of_python(key: bytes, parts: list[bytes]) -> None:
    assert hmac_sha256(key, parts) == hmac.digest(key, b"".join(parts), "sha256")


# ── who may come in ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "node", "incarnation", "lane", "wanted"),
    [
        (KEY, MEMBER, MEMBER_INCARNATION, 0, OK),
        (KEY, MEMBER, MEMBER_INCARNATION, 2, OK),
        (KEY, MEMBER, MEMBER_INCARNATION - 1, 0, NOT_MEMBER),
        (KEY, 2, 0, 0, NOT_MEMBER),
        (KEY, ME, INCARNATION, 0, NOT_MEMBER),
        (KEY, (1 << 32) - 1, 0, 0, NOT_MEMBER),
        (KEY, CLIENT, 0, 0, OK),
        (KEY, CLIENT, 0, 1, NOT_MEMBER),
        (KEY, CLIENT, 0, 2, NOT_MEMBER),
        (OTHER_KEY, MEMBER, MEMBER_INCARNATION, 0, WRONG_KEY),
        (KEY[:-1] + b"\0", CLIENT, 0, 0, WRONG_KEY),
        (KEY, MEMBER, MEMBER_INCARNATION, 3, OK),
        (KEY, MEMBER, MEMBER_INCARNATION, 4, OK),
        (KEY, CLIENT, 0, 4, NOT_MEMBER),
        (KEY, MEMBER, MEMBER_INCARNATION, 5, WRONG_VERSION),
    ],
)
def test_the_key_and_membership_decide(server: Io, key: bytes, node: int, incarnation: int, lane: int, wanted: int) -> None:
    line, entered = connect(server.port, ME, key=key, node=node, incarnation=incarnation, lane=lane)
    with line:
        assert entered == wanted
        if wanted != OK:
            assert is_closed(line)


def test_a_node_that_is_no_member_any_more_is_cut_off(server: Io) -> None:
    line, entered = connect(server.port, ME, node=MEMBER, incarnation=MEMBER_INCARNATION)
    with line:
        assert entered == OK
        server.forget_peer(MEMBER)
        assert is_closed(line)
    again, entered = connect(server.port, ME, node=MEMBER, incarnation=MEMBER_INCARNATION)
    again.close()
    assert entered == NOT_MEMBER


def test_a_server_that_is_another_says_so(server: Io) -> None:
    line, entered = connect(server.port, ME + 1, node=CLIENT)
    line.close()
    assert entered == NOT_ME


def test_a_node_waits_for_one_that_does_not_know_it_yet(root: Path) -> None:
    nodes = Nodes(root, 2)
    ino = nodes.write(1, b"content")
    nodes.io[1].forget_peer(0)
    nodes.io[0].fetch(1, ino, 1, 7)
    time.sleep(0.3)
    assert nodes.io[0].take() == []
    nodes.io[1].set_peer(0, "127.0.0.1", nodes.io[0].port)
    assert nodes.done(0)[4] == 0
    nodes.stop()


# ── what was heard is of no use ────────────────────────────────────────────────────────────────────


def test_a_replayed_hello_and_proof_are_refused(server: Io) -> None:
    said = hello(ME, node=MEMBER, incarnation=MEMBER_INCARNATION)
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as line:
        line.sendall(said)
        challenge = exactly(line, CHALLENGE_BYTES)
        shown = proof(b"amfs data client", said, challenge)
        line.sendall(shown)
        assert status(exactly(line, HEAD.size)) == OK
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as line:
        line.sendall(said + shown + request(b"7/file"))
        assert exactly(line, CHALLENGE_BYTES) != challenge
        assert status(exactly(line, HEAD.size)) == WRONG_KEY
        assert is_closed(line)


def test_a_reflected_proof_is_refused(server: Io) -> None:
    """The server's proof is none of the other side, on this connection or another."""
    said = hello(ME, node=CLIENT)
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as line:
        line.sendall(said)
        challenge = exactly(line, CHALLENGE_BYTES)
        assert challenge[-PROOF_BYTES:] == proof(b"amfs data server", said, challenge)
        line.sendall(challenge[-PROOF_BYTES:])
        assert status(exactly(line, HEAD.size)) == WRONG_KEY
        assert is_closed(line)
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as line:
        line.sendall(challenge + challenge[-PROOF_BYTES:])  # as a hello, on lane 0
        exactly(line, CHALLENGE_BYTES)
        assert status(exactly(line, HEAD.size)) == WRONG_KEY


def test_no_request_is_read_before_the_proof(server: Io) -> None:
    said = hello(ME, node=CLIENT)
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as line:
        line.sendall(said + random.Random(1).randbytes(PROOF_BYTES) + request(b"7/file"))
        heard = b""
        with contextlib.suppress(ConnectionError):
            while more := line.recv(4096):
                heard += more
    assert len(heard) == CHALLENGE_BYTES + HEAD.size and b"stored" not in heard


# ── slow, garbage, too many ────────────────────────────────────────────────────────────────────────


def test_whoever_is_slow_is_cut_off(server: Io) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as silent, socket.create_connection(
        ("127.0.0.1", server.port), GUARD_S
    ) as half:
        half.sendall(hello(ME, node=CLIENT))
        exactly(half, CHALLENGE_BYTES)
        assert is_closed(half) and is_closed(silent)
    assert 3 < time.monotonic() - began < GUARD_S


def test_garbage_harms_nothing(server: Io) -> None:
    chance = random.Random(7)
    kept = []
    for i in range(400):
        stranger = socket.create_connection(("127.0.0.1", server.port))
        junk = chance.randbytes(chance.randrange(200))
        good = HELLO.pack(MAGIC, VERSION, i % 4, CLIENT, 0, ME, 0, bytes(32))[: 8 + i % 65]
        with contextlib.suppress(ConnectionError):
            stranger.sendall((good + junk, b"GET / HTTP/1.1\r\n\r\n", junk)[i % 3])
        kept.append(stranger)
        if i % 2:
            kept.pop().close()
    assert read(server) == b"stored"
    for stranger in kept:
        stranger.close()


def test_a_crowd_takes_bounded_room_and_keeps_nobody_out(server: Io) -> None:
    before = open_descriptors()
    crowd = [socket.create_connection(("127.0.0.1", server.port), GUARD_S) for _ in range(700)]
    for stranger in crowd[::2]:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(hello(ME, node=CLIENT))
    assert read(server) == b"stored"
    assert open_descriptors() - before < 700 + 256 + 30
    for stranger in crowd:
        stranger.close()


# ── files of the store ─────────────────────────────────────────────────────────────────────────────


def test_a_client_reads_a_file_and_is_told_of_errors(server: Io) -> None:
    assert read(server) == b"stored"
    for wanted, problem in (
        (errno.ENOENT, lambda: read(server, "7/absent")),
        (errno.ESTALE, lambda: read(server, size=5)),
        (errno.ESTALE, lambda: read(server, size=7)),
        (errno.EISDIR, lambda: read(server, "7")),
        (errno.EACCES, lambda: read(server, key=OTHER_KEY)),
        (errno.EIO, lambda: read(server, node=ME + 1)),
        (errno.EIO, lambda: read(server, incarnation=INCARNATION + 1)),
    ):
        with pytest.raises(OSError) as caught:
            problem()
        assert caught.value.errno == wanted


@pytest.mark.parametrize(
    "path",
    ["../parts", "7/../../secret", "/etc/passwd", "7//file", "7/./file", "7/file/", "7/file/x", "./7/file", "link", "up/secret", "..", "."],
)
def test_no_path_leads_out_of_the_store(server: Io, root: Path, path: str) -> None:
    (root / "secret").write_bytes(b"secret")
    (root / "store" / "link").symlink_to(root / "secret")
    (root / "store" / "up").symlink_to(root)
    with pytest.raises(OSError):
        read(server, path)


def test_deep_paths_and_long_ones(server: Io, root: Path) -> None:
    deep = "7/" + "d/" * 300 + "x"
    (root / "store" / deep).parent.mkdir(parents=True)
    (root / "store" / deep).write_bytes(b"deeper")
    assert read(server, deep) == b"deeper"
    for path in ("7/" + "n" * 256, "d/" * 2047 + "x"):
        with pytest.raises(OSError):
            read(server, path)


@pytest.mark.parametrize("message", [
    request(b""), request(b"7/fi\0le"), request(b"x" * 4096), request(b"7/file", index=0), request(b"7/file", op=2),
    request(b"7/file", op=4),
    request(b"", ino=5), request(b"", ino=5, op=7), request(b"7/file", size=1 << 63),
], ids=str)  # fmt: skip
def test_what_no_client_may_ask_closes_the_connection(server: Io, message: bytes) -> None:
    line, entered = connect(server.port, ME, node=CLIENT)
    with line:
        assert entered == OK
        line.sendall(message)
        assert is_closed(line)
    assert read(server) == b"stored"


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 18, (2 << 20) + 1, 24 * 1024 * 1024 + 13])
def test_a_fetch_brings_the_file(server: Io, root: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (root / "store" / "7" / "data").write_bytes(data)
    io = fetcher(server, root)
    io.fetch_stored(3, ME, "7/data", size, str(root / "got" / "there" / "data"), 0o440)
    assert ended(io) == (4, 3, 0, size, 0)
    assert (root / "got" / "there" / "data").read_bytes() == data
    assert (root / "got" / "there" / "data").stat().st_mode & 0o7777 == 0o440
    assert os.listdir(root / "got" / "there") == ["data"]
    io.stop()


def test_a_fetch_that_fails_leaves_nothing(server: Io, root: Path) -> None:
    io = fetcher(server, root)
    (root / "got").mkdir()
    (root / "taken").write_bytes(b"")
    for serial, (path, size, destination, wanted) in enumerate((
        ("7/absent", 6, "got/x", errno.ENOENT), ("7/file", 5, "got/x", errno.ESTALE), ("7", 6, "got/x", errno.EISDIR),
        ("7/../7/file", 6, "got/x", errno.EINVAL), ("7/file", 6, "taken/x", errno.ENOTDIR),
    )):  # fmt: skip
        io.fetch_stored(serial, ME, path, size, str(root / destination), 0o440)
        assert ended(io)[4] == wanted, path
    assert os.listdir(root / "got") == []
    (root / "got" / "x").write_bytes(b"first")
    io.fetch_stored(9, ME, "7/file", 6, str(root / "got" / "x"), 0o440)
    assert ended(io)[4] == 0
    assert (root / "got" / "x").read_bytes() == b"first"  # it may be in use
    assert os.listdir(root / "got") == ["x"]
    io.stop()


def test_stopping_ends_fetches_under_way(server: Io, root: Path) -> None:
    before = open_descriptors()
    silent = socket.create_server(("127.0.0.1", 0))
    io = fetcher(server, root)
    io.set_peer(5, "127.0.0.1", silent.getsockname()[1])
    for serial in range(5):
        io.fetch_stored(serial, 5, "7/file", 6, str(root / f"got{serial}"), 0o440)
    time.sleep(0.2)
    io.stop()
    io.fetch_stored(5, 5, "7/file", 6, str(root / "got5"), 0o440)
    assert {event[4] for event in io.take()} == {errno.ECANCELED}
    assert not [path for path in root.iterdir() if path.name.startswith((".amfs", "got"))]
    silent.close()
    del io
    assert open_descriptors() <= before


def fetcher(server: Io, root: Path) -> Io:
    (root / "mine").mkdir()
    io = Io(MEMBER, str(root / "mine"), "", key=KEY, incarnation=MEMBER_INCARNATION)
    io.set_stall_ms(5000)
    io.set_peer(ME, "127.0.0.1", server.port, INCARNATION)
    return io


def ended(io: Io) -> tuple[int, int, int, int, int]:
    assert select.select([io.fd], [], [], GUARD_S)[0], "it does not end"
    (event,) = io.take()
    return event


# ── the contract ───────────────────────────────────────────────────────────────────────────────────


def test_arguments(root: Path) -> None:
    (root / "x").mkdir()
    with pytest.raises(ValueError, match="32 bytes"):
        Io(0, str(root / "x"), "", key=b"short")
    with pytest.raises(OSError, match="needs the session's key"):
        Io(0, str(root / "x"), "127.0.0.1")
    with pytest.raises(OSError, match="absent"):
        Io(0, str(root / "x"), "", store=str(root / "absent"))
    with pytest.raises(ValueError, match="no client"):
        read_stored(KEY, 5, 0, 0, "127.0.0.1", 1, "x", 1)
