"""Shards that are asked directly (csrc/far.h): what is answered at once, what takes the long way, and what bad bytes and dead peers do.

The nodes are in this process; their mounts are served over a socket instead of /dev/fuse.
"""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from waiting import until

from amfs._native import Fuse, Io, Meta
from amfs.fs.attr import META_SET_MODE, Attr

PARTITIONS = 8
ROOT = 1
META_NOT_MINE, META_BUSY = 1001, 1002
LOOKUP, GETATTR, OPEN, CREATE, UNLINK, CLOSED, TOUCH, READLINK, GET_XATTR = range(1, 10)
HAS_ATTR, HOLDS, GONE, USED = 1, 2, 4, 8
HELLO = struct.Struct("<IHHiI16s")
WELCOME = struct.Struct("<IHH")
QUESTION = struct.Struct("<IIBBHIQq")
ANSWER = struct.Struct("<IIiI")
RECORD = struct.Struct("<QIIIIIIBBHiiQQqqq")
MAGIC, VERSION, LANE = 0x49464D41, 1, 2
GUARD_S = 20.0
FILE = stat.S_IFREG | 0o644


def token(at: int, of: int) -> bytes:
    """What node ``of`` shows to node ``at``."""
    return bytes([at, of, 9]) + bytes(13)


def record(**more: int) -> Attr:
    return Attr(mode=FILE, uid=7, gid=8, writer=-1, rank=-1, finished=1)._replace(**more)


def pack_record(a: Attr) -> bytes:
    return RECORD.pack(*a[:9], 0, *a[9:])


def unpack_record(data: bytes) -> Attr:
    values = RECORD.unpack(data)
    return Attr(*values[:9], *values[10:])


def question(
    op: int, ino: int, serial: int = 1, *, name: bytes = b"", attr: Attr | None = None, value: bytes = b"", flags: int = 0, now: int = 0
) -> bytes:
    rest = (pack_record(attr) if attr is not None else b"") + name + value
    flags |= HAS_ATTR if attr is not None else 0
    return QUESTION.pack(QUESTION.size + len(rest), serial, op, flags, len(name), len(value), ino, now) + rest


class Answer(NamedTuple):
    serial: int
    error: int
    flags: int
    attr: Attr | None
    rest: bytes


class Line:
    """A connection as another node makes it."""

    def __init__(self, port: int, node: int, token: bytes, lane: int = LANE) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), GUARD_S)
        self.socket.sendall(HELLO.pack(MAGIC, VERSION, lane, node, 0, token))
        self.status = WELCOME.unpack(self._exactly(WELCOME.size))[2]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def hear(self) -> Answer:
        head = self._exactly(ANSWER.size)
        size, serial, error, flags = ANSWER.unpack(head)
        rest = self._exactly(size - ANSWER.size)
        attr = unpack_record(rest[: RECORD.size]) if flags & HAS_ATTR else None
        return Answer(serial, error, flags, attr, rest[RECORD.size if attr else 0 :])

    def ask(self, *args: int, **more: object) -> Answer:
        self.socket.sendall(question(*args, **more))  # type: ignore[arg-type]
        return self.hear()

    def close(self) -> None:
        self.socket.close()


class Kernel:
    """The kernel's side of a mount."""

    def __init__(self, fuse: Callable[[int], Fuse]) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.fuse = fuse(theirs.detach())
        self.socket.settimeout(GUARD_S)
        self.unique = 0
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.wait(self.send(26, 0, struct.pack("<16I", 7, 45, 0, 0, *([0] * 12))))

    def send(self, opcode: int, ino: int, body: bytes) -> int:
        self.unique += 2
        self.socket.send(struct.pack("<IIQQIIIHH", 40 + len(body), opcode, self.unique, ino, 0, 0, 1, 0, 0) + body)
        return self.unique

    def wait(self, unique: int) -> tuple[int, bytes]:
        """(errno, bytes) of the answer to a request."""
        while unique not in self.answers:
            data = self.socket.recv(1 << 21)
            size, error, number = struct.unpack_from("<IiQ", data)
            assert size == len(data)
            self.answers[number] = (-error, data[16:])
        return self.answers.pop(unique)

    def call(self, opcode: int, ino: int, body: bytes) -> tuple[int, bytes]:
        return self.wait(self.send(opcode, ino, body))

    def lookup(self, name: bytes) -> tuple[int, bytes]:
        return self.call(1, ROOT, name + b"\0")

    def create_body(self, name: bytes) -> bytes:
        return struct.pack("<IIII", os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE, 0o22, 0) + name + b"\0"

    def create(self, name: bytes) -> tuple[int, int, int]:
        """(errno, inode, handle)"""
        error, data = self.call(35, ROOT, self.create_body(name))
        return (error, 0, 0) if error else (0, struct.unpack_from("<Q", data)[0], struct.unpack_from("<Q", data, 128)[0])

    def write(self, ino: int, handle: int, data: bytes) -> int:
        return self.call(16, ino, struct.pack("<QQIIQII", handle, 0, len(data), 0, 0, 0, 0) + data)[0]

    def release(self, ino: int, handle: int) -> None:
        assert self.call(18, ino, struct.pack("<QIIQ", handle, 0, 0, 0))[0] == 0

    def size(self, ino: int) -> int:
        error, data = self.call(3, ino, bytes(16))
        assert not error
        size: int = struct.unpack_from("<Q", data, 16 + 8)[0]
        return size

    def unlink(self, name: bytes) -> int:
        return self.call(10, ROOT, name + b"\0")[0]

    def asked(self) -> list[str]:
        """What came to the poll loop since the last call."""
        return [op for _, op, *_ in self.fuse.requests()]

    def until_asked(self, count: int = 1) -> list[str]:
        """What has come to the poll loop, when `count` has."""
        asked: list[str] = []
        while len(asked) < count:
            ready, _, _ = select.select([self.fuse.fd], [], [], GUARD_S)
            assert ready, f"nothing more has come to the poll loop than {asked}"
            asked += self.asked()
        return asked

    def stop(self) -> None:
        self.fuse.stop()
        self.socket.close()


class Node:
    def __init__(self, number: int, root: Path, stall_ms: int) -> None:
        root.mkdir()
        self.number = number
        self.meta = Meta(number)
        self.io = Io(number, str(root), "127.0.0.1")
        self.io.set_stall_ms(stall_ms)
        self.io.serve(self.meta)
        self.root = root

    def parts(self) -> int:
        return len(self.io.list_parts())


class Cluster:
    def __init__(self, root: Path, count: int = 2, stall_ms: int = 5000) -> None:
        self.nodes = [Node(i, root / str(i), stall_ms) for i in range(count)]
        self.kernels: list[Kernel] = []
        for a in self.nodes:
            for b in self.nodes:
                if a is not b:
                    a.io.grant(b.number, token(a.number, b.number))
                    b.io.set_peer(a.number, "127.0.0.1", a.io.port, token(a.number, b.number))
        self.version = 0
        self.set_table([p % count for p in range(PARTITIONS)])

    def set_table(self, owners: list[int]) -> None:
        self.version += 1
        for node in self.nodes:
            node.meta.set_table(owners, self.version)

    def mount(self, number: int) -> Kernel:
        node = self.nodes[number]
        self.kernels.append(Kernel(lambda fd: Fuse(fd, node.meta, node.io, number, passthrough=False)))
        return self.kernels[-1]

    def name_at(self, number: int, text: str = "f") -> bytes:
        """A name whose entry lies at a node."""
        meta = self.nodes[0].meta
        return next(n for i in range(1000) if meta.owner(meta.name_partition(ROOT, n := f"{text}{i}".encode())) == number)

    def stop(self) -> None:
        for kernel in self.kernels:
            kernel.stop()
        for node in self.nodes:
            node.io.stop()
            node.meta.check()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    it = Cluster(tmp_path)
    yield it
    it.stop()


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    """Node 1 asks node 0."""
    it = Line(cluster.nodes[0].io.port, 1, token(0, 1))
    assert it.status == 0
    yield it
    it.close()


# ── what a shard answers ───────────────────────────────────────────────────────────────────────────


def test_life_of_a_file(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    assert line.ask(LOOKUP, ROOT, name=name).error == errno.ENOENT
    made = line.ask(CREATE, ROOT, 5, name=name, attr=record(writer=1, finished=0), now=100)
    assert (made.serial, made.error) == (5, 0)
    assert made.attr is not None
    ino = made.attr.ino
    assert meta.getattr(ino, 0) == tuple(made.attr)
    assert (made.attr.writer, made.attr.finished, made.attr.uid, made.attr.mtime) == (1, 0, 7, 100)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == errno.EEXIST
    done = line.ask(CLOSED, ino, attr=made.attr._replace(size=5, blocks=8, mtime=200, ctime=200))
    assert done.attr is not None
    assert (done.attr.size, done.attr.finished, done.attr.writer) == (5, 1, -1)
    assert meta.holders(ino) == (1,)
    found = line.ask(LOOKUP, ROOT, name=name)
    assert found.attr == done.attr
    assert line.ask(OPEN, ino).flags & HOLDS
    gone = line.ask(UNLINK, ROOT, name=name, now=300)
    assert gone.error == 0
    assert gone.flags & GONE
    assert meta.counts()["inodes"] == 0


def test_who_asks_is_told_of_changes_afterwards(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    assert line.ask(LOOKUP, ROOT, name=name).error == 0
    assert meta.setattr(ino, 1, tuple(record(mode=0o600)), 2, 0)[1] == (1,)
    assert line.ask(GETATTR, ino).error == 0
    assert meta.setattr(ino, 1, tuple(record(mode=0o640)), 3, 0)[1] == (1,)


def test_links_and_attributes(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(mode=stat.S_IFLNK | 0o777), value=b"to/somewhere")
    assert made.attr is not None
    assert line.ask(READLINK, made.attr.ino).rest == b"to/somewhere"
    cluster.nodes[0].meta.set_xattr(made.attr.ino, b"user.a", b"value", 0, 1)
    assert line.ask(GET_XATTR, made.attr.ino, name=b"user.a").rest == b"value"
    assert line.ask(GET_XATTR, made.attr.ino, name=b"security.capability").error == errno.ENODATA
    cluster.nodes[0].meta.set_xattr(made.attr.ino, b"user.long", bytes(20000), 0, 1)
    assert line.ask(GET_XATTR, made.attr.ino, name=b"user.long").error == META_BUSY


def test_empty_files_are_held_at_once(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record()))[0]
    assert line.ask(OPEN, ino).flags & HOLDS
    assert meta.holders(ino) == (0, 1)


def test_contents_elsewhere_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record(writer=0, finished=0)))[0]
    meta.wrote(ino, 0, tuple(record(size=9)))
    answer = line.ask(OPEN, ino)
    assert answer.error == 0
    assert not answer.flags & HOLDS
    assert meta.holders(ino) == (0,)


def test_another_partition_takes_the_long_way(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(1)
    for op in (LOOKUP, UNLINK):
        assert line.ask(op, ROOT, name=name).error == META_NOT_MINE
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == META_NOT_MINE
    meta = cluster.nodes[0].meta
    partition = meta.name_partition(ROOT, cluster.name_at(0))
    meta.set_moving([partition], True)
    assert line.ask(LOOKUP, ROOT, name=cluster.name_at(0)).error == META_NOT_MINE


def test_third_nodes_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0))
    assert made.attr is not None
    meta.lookup(ROOT, name, 2)  # node 2 has it in its cache from now on
    assert line.ask(CLOSED, made.attr.ino, attr=made.attr).error == META_BUSY
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY
    assert meta.getattr(made.attr.ino, 0)[9] == 1, "and nothing was changed"
    meta.getattr(ROOT, 2)
    assert line.ask(TOUCH, ROOT, now=5).error == META_BUSY


def test_locked_names_and_unlinked_files_take_the_long_way(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0))
    assert made.attr is not None
    meta.lock(ROOT, name, 1 << 40)
    assert line.ask(UNLINK, ROOT, name=name).error == META_BUSY
    meta.unlock(ROOT, name, 1 << 40)
    assert line.ask(UNLINK, ROOT, name=name).error == 0
    assert line.ask(CLOSED, made.attr.ino).error == META_BUSY, "with its last user its data goes, which many must be told"


def test_directories_nobody_has_heard_of_take_the_long_way(cluster: Cluster, line: Line) -> None:
    unknown = 5 << 40 | 3
    meta = cluster.nodes[0].meta
    name = next(n for i in range(1000) if meta.owner(meta.name_partition(unknown, n := b"%d" % i)) == 0)
    assert line.ask(LOOKUP, unknown, name=name).error == META_BUSY
    assert line.ask(CREATE, unknown, name=name, attr=record()).error == META_BUSY


def test_only_for_oneself(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    assert line.ask(CREATE, ROOT, name=name, attr=record(writer=3, finished=0)).error == errno.EINVAL
    ino = meta.create(ROOT, name, 1, 0, None, tuple(record(writer=0, finished=0)))[0]
    done = line.ask(CLOSED, ino, attr=record(size=77))
    assert done.attr is not None
    assert (done.attr.writer, done.attr.size) == (0, 0), "it is not its writer"


def test_times_set_while_it_was_written_stand(cluster: Cluster, line: Line) -> None:
    meta, name = cluster.nodes[0].meta, cluster.name_at(0)
    made = line.ask(CREATE, ROOT, name=name, attr=record(writer=1, finished=0), now=10)
    assert made.attr is not None
    meta.setattr(made.attr.ino, 16 | 32, tuple(record(atime=3, mtime=4)), 50, 1)
    done = line.ask(CLOSED, made.attr.ino, attr=made.attr._replace(size=1, mtime=40))
    assert done.attr is not None
    assert (done.attr.atime, done.attr.mtime) == (3, 4)


def test_touch(cluster: Cluster, line: Line) -> None:
    assert line.ask(TOUCH, ROOT, now=1 << 62).error == 0
    assert cluster.nodes[0].meta.dir_get(ROOT)[0][14] == 1 << 62


def test_shy_nodes_change_nothing(cluster: Cluster, line: Line) -> None:
    name = cluster.name_at(0)
    cluster.nodes[0].io.set_shy(True)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == META_BUSY
    assert line.ask(LOOKUP, ROOT, name=name).error == errno.ENOENT
    cluster.nodes[0].io.set_shy(False)
    assert line.ask(CREATE, ROOT, name=name, attr=record()).error == 0


def test_many_at_once_are_answered_in_their_order(cluster: Cluster, line: Line) -> None:
    names = [n for i in range(2000) if cluster.nodes[0].meta.owner(cluster.nodes[0].meta.name_partition(ROOT, n := b"m%d" % i)) == 0]
    sender = threading.Thread(
        target=lambda: line.socket.sendall(b"".join(question(CREATE, ROOT, i, name=name, attr=record()) for i, name in enumerate(names)))
    )
    sender.start()
    answers = [line.hear() for _ in names]
    sender.join()
    assert [answer.serial for answer in answers] == list(range(len(names)))
    assert not any(answer.error for answer in answers)
    assert cluster.nodes[0].meta.counts()["entries"] == len(names)


# ── bad bytes ──────────────────────────────────────────────────────────────────────────────────────


def test_strangers_stay_outside(cluster: Cluster) -> None:
    for node, shown in ((1, token(0, 0)), (5, token(0, 1))):
        stranger = Line(cluster.nodes[0].io.port, node, shown)
        stranger.close()
        assert stranger.status == 1


@pytest.mark.parametrize("seed", range(40))
def test_garbage_ends_the_connection_and_nothing_else(cluster: Cluster, seed: int) -> None:
    random.seed(seed)
    name = cluster.name_at(0)
    good = question(CREATE, ROOT, 1, name=name, attr=record(mode=stat.S_IFIFO | 0o600))
    bad = bytearray(good if seed % 2 else random.randbytes(random.randrange(1, 200)))
    for _ in range(seed % 7):
        bad[random.randrange(len(bad))] = random.randrange(256)
    one = Line(cluster.nodes[0].io.port, 1, token(0, 1))
    one.socket.sendall(bad)
    one.socket.shutdown(socket.SHUT_WR)
    while one.socket.recv(4096):
        pass
    one.close()
    two = Line(cluster.nodes[0].io.port, 1, token(0, 1))
    assert two.ask(LOOKUP, ROOT, name=b"x" + name).error in (errno.ENOENT, META_NOT_MINE)
    two.close()
    cluster.nodes[0].meta.check()


def test_a_question_cut_anywhere_is_none(cluster: Cluster) -> None:
    good = question(CREATE, ROOT, 1, name=cluster.name_at(0), attr=record())
    for end in range(1, len(good), 3):
        one = Line(cluster.nodes[0].io.port, 1, token(0, 1))
        one.socket.sendall(good[:end])
        one.close()
    time.sleep(0.05)
    assert cluster.nodes[0].meta.counts()["entries"] == 0


def test_a_question_in_pieces_is_one(cluster: Cluster, line: Line) -> None:
    for byte in question(CREATE, ROOT, 8, name=cluster.name_at(0), attr=record()):
        line.socket.sendall(bytes([byte]))
        time.sleep(0.0005)
    assert line.hear()[:2] == (8, 0)


# ── mounts that ask ────────────────────────────────────────────────────────────────────────────────


def connected(kernel: Kernel, node: Node, name: bytes) -> None:
    """The first question connects, and takes the long way itself."""
    before = node.io.questions[0]
    while node.io.questions[0] == before:
        unique = kernel.send(1, ROOT, name + b"\0")
        end = time.monotonic() + GUARD_S
        while True:
            for request in kernel.fuse.requests():
                kernel.fuse.reply_error(request[0], errno.ENOENT)
            if select.select([kernel.socket], [], [], 0.005)[0]:
                break
            assert time.monotonic() < end
        assert kernel.wait(unique)[0] == errno.ENOENT


def test_a_mount_does_without_the_poll_loop(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    error, ino, handle = kernel.create(name)
    assert error == 0
    assert there.meta.getattr(ino, 1)[9] == 0, "this node writes it"
    assert kernel.write(ino, handle, b"hello") == 0
    assert kernel.size(ino) == 5
    kernel.release(ino, handle)
    assert kernel.size(ino) == 5, "also while its shard is being told"
    until(lambda: there.meta.getattr(ino, 1)[8] == 1, "its shard has not heard that it is closed")
    assert Attr(*there.meta.getattr(ino, 1)).size == 5
    assert there.meta.holders(ino) == (0,)
    assert here.parts() == 1
    error, data = kernel.lookup(name)
    assert (error, struct.unpack_from("<Q", data)[0]) == (0, ino)
    assert kernel.create(name)[0] == errno.EEXIST
    assert kernel.unlink(name) == 0
    assert kernel.lookup(name)[0] == errno.ENOENT
    until(lambda: here.parts() == 0, "its data stays")
    assert there.meta.counts()["inodes"] == 0
    assert not [op for op in kernel.asked() if op != "touched"]
    assert here.meta.direct_uses(ino) == (0, 0, False)


def test_who_keeps_the_record_of_what_it_closed_is_told_of_the_next_change(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    _, ino, handle = kernel.create(name)
    change = (ino, META_SET_MODE, tuple(Attr(mode=0o640)), 1, 1)
    assert there.meta.setattr(*change)[1] == (0,), "who makes it is told"
    kernel.release(ino, handle)
    until(lambda: here.meta.direct_uses(ino) == (0, 0, False), "its shard has not answered")
    assert here.meta.cached(ino)[0][1] & 0o777 == 0o640
    assert there.meta.setattr(*change)[1] == (0,)


def test_a_file_that_the_loop_uses_is_closed_by_it(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    _, ino, handle = kernel.create(name)
    assert here.meta.direct_uses(ino) == (1, 1, False)
    here.meta.claim(ino, True)
    kernel.release(ino, handle)
    assert [op for op in kernel.until_asked() if op == "closed"]
    assert here.meta.direct_uses(ino) == (0, 0, False)
    assert there.meta.getattr(ino, 1)[8] == 0


def test_what_a_third_node_watches_comes_to_the_poll_loop(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    _, ino, handle = kernel.create(name)
    there.meta.lookup(ROOT, name, 2)
    kernel.release(ino, handle)
    assert kernel.until_asked(2)[:2] == ["closed", "closed"]
    unique = kernel.send(10, ROOT, name + b"\0")
    assert "unlink" in kernel.until_asked()
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


def test_an_old_table_leads_to_the_long_way(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    there.meta.set_table([0] * PARTITIONS, cluster.version + 1)
    for opcode, body, op in ((1, name + b"\0", "lookup"), (35, kernel.create_body(name), "create"), (10, name + b"\0", "unlink")):
        unique = kernel.send(opcode, ROOT, body)
        assert op in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.EIO)
        assert kernel.wait(unique)[0] == errno.EIO


def test_other_kernels_forget_what_is_unlinked_from_afar(cluster: Cluster) -> None:
    """The owner's own mount has looked it up: it must be told before the answer, not instead of it."""
    here, there = cluster.nodes
    kernel, other, name = cluster.mount(0), cluster.mount(1), cluster.name_at(1)
    connected(kernel, here, name)
    _, ino, handle = kernel.create(name)
    kernel.release(ino, handle)
    until(lambda: there.meta.getattr(ino, 1)[8] == 1, "its shard has not heard that it is closed")
    assert other.lookup(name)[0] == 0
    assert kernel.unlink(name) == 0
    assert other.lookup(name)[0] == errno.ENOENT


class Liar:
    """A peer that lets everybody in and then does as it is told."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.act = act
        self.held: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                line, _ = self.socket.accept()
            except OSError:
                return
            self.held.append(line)
            if HELLO.unpack(line.recv(HELLO.size, socket.MSG_WAITALL))[2] == LANE:
                line.sendall(WELCOME.pack(MAGIC, VERSION, 0))
                self.act(line)

    def close(self) -> None:
        for each in [self.socket, *self.held]:
            each.close()


@contextmanager
def lied_to(top: Path, act: Callable[[socket.socket], None], stall_ms: int) -> Iterator[Cluster]:
    """Nodes of which the first takes a liar for node 1."""
    cluster = Cluster(top, stall_ms=stall_ms)
    liar = Liar(act)
    try:
        cluster.nodes[0].io.set_peer(1, "127.0.0.1", liar.port, token(1, 0))
        yield cluster
    finally:
        liar.close()
        cluster.stop()


def _garbage(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(random.Random(5).randbytes(300))


def _wrong_size(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(1 << 30, 1, 0, 0))


def _half_a_record(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(ANSWER.size + 10, 1, 0, HAS_ATTR) + bytes(10))


def _cut(line: socket.socket) -> None:
    line.recv(10)
    line.close()


def _silent(line: socket.socket) -> None:
    line.recv(10)


def _unasked(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(ANSWER.size, 4_000_000, 0, 0))
    line.sendall(bytes(3))
    line.close()


@pytest.mark.parametrize("act", [_garbage, _wrong_size, _half_a_record, _cut, _silent, _unasked])
def test_peers_that_lie_or_die_hang_nobody(tmp_path: Path, act: Callable[[socket.socket], None]) -> None:
    """Questions take the long way then; of a change nobody knows whether it was made."""
    with lied_to(tmp_path, act, 700) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        lost = 0
        end = time.monotonic() + GUARD_S
        while not lost and time.monotonic() < end:
            before = here.io.questions[0]
            unique = kernel.send(35, ROOT, kernel.create_body(name))
            while not select.select([kernel.socket], [], [], 0.02)[0]:
                assert time.monotonic() < end, "the request hangs"
                for request in kernel.fuse.requests():
                    if request[0]:
                        kernel.fuse.reply_error(request[0], errno.EBUSY)
            error, _ = kernel.wait(unique)
            asked = here.io.questions[0] > before
            assert error == (errno.EIO if asked else errno.EBUSY)
            lost += asked
            time.sleep(0.01)
        assert lost
        unique = kernel.send(1, ROOT, name + b"\0")
        assert "lookup" in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.ENOENT)
        assert kernel.wait(unique)[0] == errno.ENOENT


def test_a_mount_that_ends_takes_its_questions_with_it(tmp_path: Path) -> None:
    with lied_to(tmp_path, _silent, 60000) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        end = time.monotonic() + GUARD_S
        while not here.io.questions[0]:
            kernel.send(1, ROOT, name + b"\0")
            time.sleep(0.01)
            assert time.monotonic() < end
        began = time.monotonic()
        kernel.fuse.stop()
        assert time.monotonic() - began < 5


def test_a_dead_peer_fails_what_waits_for_it_at_once(tmp_path: Path) -> None:
    with lied_to(tmp_path, _silent, 60000) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        end = time.monotonic() + GUARD_S
        unique = 0
        while not here.io.questions[0]:
            unique = kernel.send(1, ROOT, name + b"\0")
            time.sleep(0.01)
            assert time.monotonic() < end
        kernel.asked()
        here.io.forget_peer(1)
        assert "lookup" in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.EIO)
        assert kernel.wait(unique)[0] == errno.EIO
