"""The data mover through Python: real files, sockets, threads and processes. What the sanitisers see is csrc/tests/test_mover.c."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs._native import Mover

GUARD_SECONDS = 30.0
TICKET_BYTES = 16
LARGE = 24 * 1024 * 1024 + 13


def await_served(server: Mover, size: int) -> None:
    """The server counts when it has sent, and we may have it all before."""
    end = time.monotonic() + GUARD_SECONDS
    while server.counters()["bytes_served"] != size:
        assert time.monotonic() < end
        time.sleep(0.001)


def collect(mover: Mover, count: int = 1) -> dict[int, tuple[str, int]]:
    """The next ``count`` completions as {serial: (error, bytes)}; fails instead of hanging."""
    found: dict[int, tuple[str, int]] = {}
    deadline = time.monotonic() + GUARD_SECONDS
    while len(found) < count:
        ready, _, _ = select.select([mover.fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"only {len(found)} of {count} completions"
        for serial, error, size in mover.completions():
            assert serial not in found
            found[serial] = (error, size)
    assert len(found) == count
    return found


def parts_in(path: Path) -> list[str]:
    return [name for _, _, names in os.walk(path) for name in names if name.startswith(".amfs-part-")]


@pytest.fixture
def mover() -> Iterator[Mover]:
    it = Mover(2)
    yield it
    it.stop()


@pytest.fixture
def server() -> Iterator[Mover]:
    it = Mover(1, listen="127.0.0.1")
    yield it
    it.stop()


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


# ── copies ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20, LARGE])
def test_copy_gives_content_mode_and_parents(mover: Mover, tmp_path: Path, size: int) -> None:
    source, destination = tmp_path / "source", tmp_path / "deep" / "er" / "copy"
    source.write_bytes(content(size))
    mover.copy(7, str(source), str(destination), 0o640)
    assert collect(mover) == {7: ("", size)}
    assert destination.read_bytes() == content(size)
    assert destination.stat().st_mode & 0o7777 == 0o640
    assert os.listdir(destination.parent) == ["copy"]


def test_copy_across_file_systems(mover: Mover, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(content(3_000_001))
    shared = Path("/dev/shm") / f"amfs-test-mover-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK):
        shared = tmp_path / "same"  # then it is the same file system, and still a copy
    try:
        mover.copy(1, str(source), str(shared / "there"), 0o600)
        assert collect(mover)[1] == ("", 3_000_001)
        assert (shared / "there").read_bytes() == content(3_000_001)
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def test_copy_replaces_atomically_and_readers_of_the_old_keep_it(mover: Mover, tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "destination"
    source.write_bytes(b"new")
    destination.write_bytes(b"old")
    with destination.open("rb") as old:
        mover.copy(1, str(source), str(destination), 0o644)
        assert collect(mover)[1] == ("", 3)
        assert old.read() == b"old"
    assert destination.read_bytes() == b"new"


def test_copy_of_names_that_are_not_text(mover: Mover, tmp_path: Path) -> None:
    source = os.fsdecode(bytes(tmp_path) + b"/s\xff \n")
    with open(source, "wb") as file:
        file.write(b"here")
    mover.copy(1, source, source + "\udcfe", 0o644)
    assert collect(mover)[1] == ("", 4)
    assert os.path.exists(source + "\udcfe")
    mover.copy(2, source + "absent", str(tmp_path / "x"), 0o644)
    error, _ = collect(mover)[2]
    error.encode()  # can be printed
    assert "\\xff" in error


@pytest.mark.parametrize(
    ("source", "destination", "directories", "words"),
    [
        ("absent", "x", True, ["absent", "No such file"]),
        (".", "x", True, ["directory"]),
        ("/dev/zero", "x", True, ["/dev/zero", "not a regular file"]),
        ("file", "nodir/x", False, ["nodir/x", "No such file"]),
        ("file", "file/x", True, ["file", "Not a directory"]),
        ("file", "dir", True, ["rename", "dir", "directory"]),
        ("file", "/proc/self/x", True, ["/proc/self/x"]),
        ("file", "n" * 300, True, ["n" * 300, "name too long"]),
    ],
)
def test_copy_errors_name_path_and_reason(
    mover: Mover, tmp_path: Path, source: str, destination: str, directories: bool, words: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "full").touch()
    mover.copy(1, str(tmp_path / source), str(tmp_path / destination), 0o644, directories=directories)
    error, _ = collect(mover)[1]
    for word in words:
        assert word in error
    assert parts_in(tmp_path) == []


def test_many_copies_all_complete(mover: Mover, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 100)
    for serial in range(500):
        mover.copy(serial, str(tmp_path / "source"), str(tmp_path / f"d{serial % 7}" / str(serial)), 0o444)
    assert collect(mover, 500) == dict.fromkeys(range(500), ("", 100))
    assert mover.counters()["bytes_copied"] == 50_000
    assert sum(len(names) for _, _, names in os.walk(tmp_path)) == 501


@contextlib.contextmanager
def small_tmpfs(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "amfs-test", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs")
def test_full_destination(mover: Mover, server: Mover, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(content(LARGE))
    with small_tmpfs(tmp_path / "small", "4m") as small:
        mover.copy(1, str(source), str(small / "copy"), 0o644)
        mover.fetch(2, "127.0.0.1", server.port, server.offer(str(source)), LARGE, str(small / "sub" / "fetched"), 0o644)
        done = collect(mover, 2)
        assert "No space left" in done[1][0]
        assert f"{small}/copy" in done[1][0]
        assert "No space left" in done[2][0]
        assert "sub/fetched" in done[2][0]
        assert parts_in(small) == []
        mover.copy(3, str(source), str(tmp_path / "elsewhere"), 0o644)
        assert collect(mover)[3] == ("", LARGE)


# ── fetches ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 18, (1 << 18) + 1, LARGE])
@pytest.mark.parametrize("place", ["disk", "shm"])
def test_fetch(mover: Mover, server: Mover, tmp_path: Path, size: int, place: str) -> None:
    base = tmp_path if place == "disk" else Path("/dev/shm") / f"amfs-test-mover-{os.getpid()}"
    base.mkdir(exist_ok=True)
    try:
        (base / "source").write_bytes(content(size))
        ticket = server.offer(str(base / "source"))
        assert len(ticket) == TICKET_BYTES
        mover.fetch(3, "localhost", server.port, ticket, size, str(base / "a" / "b"), 0o440)
        assert collect(mover) == {3: ("", size)}
        assert (base / "a" / "b").read_bytes() == content(size)
        assert (base / "a" / "b").stat().st_mode & 0o7777 == 0o440
        assert mover.counters()["bytes_fetched"] == size
        mover.stop()
        server.stop()
        await_served(server, size)
    finally:
        if place == "shm":
            shutil.rmtree(base)


def test_many_fetches_in_both_directions(tmp_path: Path) -> None:
    """More transfers at once than serving threads, between two movers that serve and fetch."""
    sides = [Mover(40, listen="127.0.0.1"), Mover(40, listen="127.0.0.1")]
    (tmp_path / "source").write_bytes(content(300_000))
    try:
        for serial in range(400):
            mine, other = sides[serial % 2], sides[1 - serial % 2]
            ticket = other.offer(str(tmp_path / "source"))
            mine.fetch(serial, "127.0.0.1", other.port, ticket, 300_000, str(tmp_path / f"{serial}"), 0o444)
        done = {**collect(sides[0], 200), **collect(sides[1], 200)}
        assert done == dict.fromkeys(range(400), ("", 300000))
        assert (tmp_path / "399").read_bytes() == content(300_000)
    finally:
        for side in sides:
            side.stop()


def test_tickets_are_good_for_one_fetch_and_different(mover: Mover, server: Mover, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"secret")
    tickets = [server.offer(str(tmp_path / "source")) for _ in range(1000)]
    assert len(set(tickets)) == 1000
    for serial in (1, 2):
        mover.fetch(serial, "127.0.0.1", server.port, tickets[0], 6, str(tmp_path / f"got{serial}"), 0o444)
        error, size = collect(mover)[serial]
        assert (error == "", size) == ((True, 6) if serial == 1 else (False, 0))
    assert "ticket is unknown, used or expired" in error
    wrong = bytes([tickets[1][0] ^ 1]) + tickets[1][1:]
    mover.fetch(3, "127.0.0.1", server.port, wrong, 6, str(tmp_path / "got3"), 0o444)
    assert "ticket is unknown" in collect(mover)[3][0]
    mover.fetch(4, "127.0.0.1", server.port, tickets[1], 6, str(tmp_path / "got4"), 0o444)
    assert collect(mover)[4] == ("", 6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got1", "got4", "source"]


def test_a_file_that_is_not_as_announced(mover: Mover, server: Mover, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    mover.fetch(1, "127.0.0.1", server.port, server.offer(str(source)), 6, str(tmp_path / "got"), 0o444)
    assert "has 5 bytes there, not 6" in collect(mover)[1][0]
    ticket = server.offer(str(source))
    source.unlink()
    mover.fetch(2, "127.0.0.1", server.port, ticket, 5, str(tmp_path / "got"), 0o444)
    assert "gone there: No such file" in collect(mover)[2][0]
    mover.fetch(3, "127.0.0.1", server.port, server.offer(str(tmp_path)), 5, str(tmp_path / "got"), 0o444)
    assert "gone there" in collect(mover)[3][0]
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(mover: Mover, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    mover.fetch(1, "127.0.0.1", port, bytes(TICKET_BYTES), 5, str(tmp_path / "got"), 0o444)
    error, _ = collect(mover)[1]
    assert "Connection refused" in error
    assert f"127.0.0.1 port {port}" in error
    mover.fetch(2, "no such host", port, bytes(TICKET_BYTES), 5, str(tmp_path / "got"), 0o444)
    assert "no such host" in collect(mover)[2][0]
    assert list(tmp_path.iterdir()) == []


def test_peer_dies_in_the_middle(mover: Mover, tmp_path: Path) -> None:
    """A real process that serves a large file, kill -9 while it is stopped half-way."""
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it cannot end before we kill it
    program = (
        "import sys; from amfs._native import Mover; m = Mover(1, listen='127.0.0.1');"
        f"print(m.port, m.offer({str(source)!r}).hex(), flush=True); sys.stdin.read()"
    )
    place = tmp_path / "place"
    place.mkdir()
    peer = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert peer.stdout is not None
        port, ticket = peer.stdout.readline().split()
        mover.fetch(1, "127.0.0.1", int(port), bytes.fromhex(ticket), 1 << 40, str(place / "got"), 0o444)
        deadline = time.monotonic() + GUARD_SECONDS
        while not any((place / name).stat().st_size > 1 << 20 for name in parts_in(place)):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        peer.kill()
        error, size = collect(mover)[1]
    finally:
        peer.kill()
        peer.communicate()
    assert "got" in error
    assert "reset" in error or f"after {size} of {1 << 40} bytes" in error
    assert 1 << 20 < size < 1 << 40
    assert list(place.iterdir()) == []


def test_stop_in_the_middle_of_everything(tmp_path: Path) -> None:
    """Transfers under way on both sides, copies and fetches queued: all complete as stopped, at once, and nothing is left."""
    before = sorted(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(1 << 40)
    silent = socket.create_server(("127.0.0.1", 0))
    server, mover = Mover(1, listen="127.0.0.1"), Mover(3)
    mover.fetch(0, "127.0.0.1", server.port, server.offer(str(source)), 1 << 40, str(tmp_path / "place" / "got"), 0o444)
    mover.fetch(1, "127.0.0.1", silent.getsockname()[1], bytes(16), 5, str(tmp_path / "place" / "silent"), 0o444)
    mover.copy(2, str(source), str(tmp_path / "place" / "copy"), 0o444)
    for serial in range(3, 20):
        mover.copy(serial, str(source), str(tmp_path / "place" / "copy"), 0o444)
    while len(parts_in(tmp_path)) < 3:
        time.sleep(0.001)
    mover.stop()
    server.stop()
    mover.copy(20, str(source), str(tmp_path / "place" / "copy"), 0o444)
    done = collect(mover, 21)
    assert {error for error, _ in done.values()} == {"stopped"}
    assert os.listdir(tmp_path / "place") == []
    mover.stop()
    silent.close()
    del mover, server
    assert (sorted(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))) == before


# ── strangers ──────────────────────────────────────────────────────────────────────────────────────


def test_garbage_harms_nothing(mover: Mover, server: Mover, tmp_path: Path) -> None:
    chance = random.Random(7)
    (tmp_path / "source").write_bytes(content(100_000))
    magic = b"AMFD\x01\x00\x00\x00"
    kept = []
    for i in range(400):
        stranger = socket.create_connection(("127.0.0.1", server.port))
        junk = chance.randbytes(chance.randrange(200))
        with contextlib.suppress(ConnectionError):
            stranger.sendall(magic + junk if i % 3 == 0 else b"GET / HTTP/1.1\r\n\r\n" if i % 3 == 1 else junk)
        if i % 2:
            kept.append(stranger)  # stays connected and says no more
        else:
            stranger.close()
    mover.fetch(1, "127.0.0.1", server.port, server.offer(str(tmp_path / "source")), 100_000, str(tmp_path / "got"), 0o444)
    assert collect(mover)[1] == ("", 100_000)
    for stranger in kept:
        stranger.close()
    await_served(server, 100_000)


def test_strangers_read_nothing(server: Mover, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"secret" * 1000)
    server.offer(str(tmp_path / "source"))
    for request in (b"\0" * 32, b"AMFD\x01\0\0\0" + bytes(16) + (6000).to_bytes(8, "little"), b"AMFD\x63\0\0\0" + bytes(24)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=GUARD_SECONDS) as stranger:
            stranger.sendall(request)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while piece := stranger.recv(4096):
                    answer += piece
        assert len(answer) in (0, 24)
        assert b"secret" not in answer


def test_who_comes_when_all_threads_serve_waits_for_one(server: Mover, tmp_path: Path) -> None:
    size, at_once, more = 32 << 20, 64, 6
    with (tmp_path / "source").open("wb") as source:
        source.truncate(size)  # more than sockets hold: who does not read keeps a thread
    with contextlib.ExitStack() as stack:

        def ask() -> socket.socket:
            taker = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=GUARD_SECONDS))
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            taker.sendall(b"AMFD\x01\0\0\0" + server.offer(str(tmp_path / "source")) + size.to_bytes(8, "little"))
            return taker

        served = [ask() for _ in range(at_once)]
        assert all(len(taker.recv(24, socket.MSG_WAITALL)) == 24 for taker in served)
        waiting = [ask() for _ in range(more)]
        assert select.select(waiting, [], [], 0.3)[0] == []
        for taker in served[:more]:
            taker.close()
        assert all(len(taker.recv(24, socket.MSG_WAITALL)) == 24 for taker in waiting)


# ── the contract ───────────────────────────────────────────────────────────────────────────────────


def test_arguments(mover: Mover, server: Mover, tmp_path: Path) -> None:
    assert mover.port == 0
    assert server.port > 0
    with pytest.raises(RuntimeError, match="does not listen"):
        mover.offer("/x")
    with pytest.raises(ValueError, match="1 to 64 threads"):
        Mover(0)
    with pytest.raises(OSError, match="not a numeric address"):
        Mover(1, listen="nowhere")
    with pytest.raises(ValueError, match="16 bytes"):
        mover.fetch(1, "localhost", 1, b"short", 1, "/x", 0)
    with pytest.raises(ValueError, match="no port"):
        mover.fetch(1, "localhost", 0, bytes(16), 1, "/x", 0)
    with pytest.raises(ValueError, match="NUL"):
        mover.copy(1, "a\0b", "/x", 0)
    assert mover.completions() == []
    assert set(mover.counters()) == {"bytes_copied", "bytes_fetched", "bytes_served", "cpu_us"}


def test_cpu_is_counted(mover: Mover, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(content(LARGE))
    mover.copy(1, str(tmp_path / "source"), str(tmp_path / "copy"), 0o644)
    collect(mover)
    assert mover.counters()["cpu_us"] > 0
