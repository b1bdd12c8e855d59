"""Shards that are asked directly (peer_meta.h): nodes of this process, their mounts served over a socket instead of /dev/fuse."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from data_handshake import KEY, accept, connect, exactly

from amfs._native import Fuse, Io, Meta
from amfs.vocabulary.attr import META_SET_ATIME, META_SET_MODE, META_SET_MTIME, Attr

PARTITIONS = 8
ROOT = 1
META_NOT_MINE, META_BUSY = 1001, 1002
LOOKUP, GETATTR, OPEN, CREATE, UNLINK, CLOSED, TOUCH, READLINK, GET_XATTR, CONTENT, HOLD, _, SETATTR, SPREAD, RESERVE, STRIKE = range(1, 17)
UNCOUNT = 17
HAS_ATTR, HOLDS, GONE, USED, SMALL, ELSEWHERE = 1, 2, 4, 8, 64, 128
QUESTION = struct.Struct("<IIBBHIQq")
ANSWER = struct.Struct("<IIiI")
RECORD = struct.Struct("<QIIIIIIBBBxiiQQqqqQ")
LANE = 2
SMALL_MAX = 4096  # META_SMALL_MAX
GUARD_S = 20.0
FILE = stat.S_IFREG | 0o644


def record(**more: int) -> Attr:
    return Attr(mode=FILE, uid=7, gid=8, writer=-1, rank=-1, finished=1)._replace(**more)


def pack_record(a: Attr) -> bytes:
    return RECORD.pack(*a[:9], a.copies, *a[9:17])


def unpack_record(data: bytes) -> Attr:
    values = RECORD.unpack(data)
    return Attr._make((*values[:9], *values[10:], values[9]))


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

    def __init__(self, port: int, node: int, *, server: int = 0, key: bytes = KEY) -> None:
        self.socket, self.status = connect(port, server, key=key, node=node, lane=LANE)

    def hear(self) -> Answer:
        head = exactly(self.socket, ANSWER.size)
        size, serial, error, flags = ANSWER.unpack(head)
        rest = exactly(self.socket, size - ANSWER.size)
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
            try:
                data = self.socket.recv(1 << 21)
            except TimeoutError:
                raise TimeoutError(f"no answer; the poll loop was asked {self.asked()}") from None
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

    def chmod(self, ino: int, mode: int) -> tuple[int, bytes]:
        return self.call(4, ino, struct.pack("<II6Q8I", META_SET_MODE, 0, *([0] * 6), 0, 0, 0, mode, 0, 0, 0, 0))

    def utime(self, ino: int, seconds: int) -> tuple[int, bytes]:
        valid = META_SET_ATIME | META_SET_MTIME  # these are the kernel's bits, too
        return self.call(4, ino, struct.pack("<II6Q8I", valid, 0, 0, 0, 0, seconds, seconds, *([0] * 9)))

    def unlink(self, name: bytes) -> int:
        return self.call(10, ROOT, name + b"\0")[0]

    def asked(self) -> list[str]:
        """Requests that came to the poll loop since the last call."""
        return [op for _, op, *_ in self.fuse.requests()]

    def until_asked(self, count: int = 1) -> list[str]:
        """Requests that have come to the poll loop, when there are `count`."""
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
    def __init__(self, number: int, root: Path, stall_ms: int, limit: int) -> None:
        root.mkdir()
        self.number = number
        self.meta = Meta(number)
        self.io = Io(number, str(root), "127.0.0.1", limit=limit, key=KEY, meta=self.meta)
        self.io.set_stall_ms(stall_ms)
        self.io.serve(self.meta)
        self.root = root

    def parts(self) -> int:
        return len(self.io.list_parts())


class Cluster:
    def __init__(self, root: Path, count: int = 2, stall_ms: int = 5000, limit: int = 0) -> None:
        self.nodes = [Node(i, root / str(i), stall_ms, limit) for i in range(count)]
        self.kernels: list[Kernel] = []
        for a in self.nodes:
            for b in self.nodes:
                if a is not b:
                    b.io.set_peer(a.number, "127.0.0.1", a.io.port)
        self.version = 0
        self.set_table([p % count for p in range(PARTITIONS)])

    def set_table(self, owners: list[int]) -> None:
        self.version += 1
        for node in self.nodes:
            node.meta.set_table(owners, self.version)

    def mount(self, number: int, workers: int = 0) -> Kernel:
        """``workers``: threads that may wait; 0: as many as usual."""
        node = self.nodes[number]
        self.kernels.append(Kernel(lambda fd: Fuse(fd, node.meta, node.io, number, passthrough=False, workers=workers)))
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


def exists(meta: Meta, ino: int) -> bool:
    try:
        meta.getattr(ino, meta.owner(meta.ino_partition(ino)))
    except OSError as error:
        assert error.errno == errno.ENOENT
        return False
    return True


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


class Liar:
    """A peer that lets everybody in and then does as it is told."""

    def __init__(self, act: Callable[[socket.socket], None], asked_for_bytes: threading.Event) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.act, self.asked_for_bytes = act, asked_for_bytes
        self.held: list[socket.socket] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # the end
            while True:
                line, _ = self.socket.accept()
                self.held.append(line)
                if accept(line) == LANE:
                    self.act(line)
                else:
                    self.asked_for_bytes.set()

    def close(self) -> None:
        for each in [self.socket, *self.held]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread, which close does not
        self.thread.join(GUARD_S)
        for each in [self.socket, *self.held]:
            each.close()


@contextmanager
def lied_to(
    top: Path, act: Callable[[socket.socket], None], stall_ms: int, asked_for_bytes: threading.Event | None = None
) -> Iterator[Cluster]:
    """Nodes of which the first takes a liar for node 1. ``asked_for_bytes`` is set when it was asked for bytes of a file: the asking
    thread holds the gate of the file then."""
    cluster = Cluster(top, stall_ms=stall_ms)
    liar = Liar(act, asked_for_bytes or threading.Event())
    try:
        cluster.nodes[0].io.set_peer(1, "127.0.0.1", liar.port)
        yield cluster
    finally:
        liar.close()
        cluster.stop()
