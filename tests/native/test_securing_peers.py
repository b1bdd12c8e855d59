"""Small files of which two nodes shall have the content, closed without any poll loop (fsmeta_secure.c, fuse_secure.c)."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from data_handshake import exactly
from peer_meta_nodes import (
    ANSWER,
    GUARD_S,
    HOLDS,
    META_BUSY,
    META_NOT_MINE,
    PARTITIONS,
    QUESTION,
    ROOT,
    SMALL_MAX,
    Cluster,
    Kernel,
    Line,
    connected,
    lied_to,
    record,
)
from waiting import until

from amfs.vocabulary.attr import Attr

FLUSH, FSYNC = 25, 20
SECURE = 19
BYTES = b"hello" * 100


def back_up(cluster: Cluster) -> None:
    """Each node has the next one as its backup."""
    numbers = [node.number for node in cluster.nodes]
    for node in cluster.nodes:
        backup = numbers[(node.number + 1) % len(numbers)]
        owners = [node.meta.owner(part) for part in range(PARTITIONS)]
        node.meta.set_backups([backup if owner == node.number else -1 for owner in owners], [n for n in numbers if n != node.number])
        node.io.backups_changed()


def in_step(cluster: Cluster) -> bool:
    of_each = [node.meta.count_backups()[1] for node in cluster.nodes]
    return of_each == [len(range(number, PARTITIONS, len(cluster.nodes))) for number in range(len(cluster.nodes))]


def want_copies(cluster: Cluster, count: int = 2) -> None:
    for node in cluster.nodes:
        node.meta.dir_set_copies(ROOT, count)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, 3)
    back_up(cluster)
    want_copies(cluster)
    until(lambda: in_step(cluster), "the backups are not in step")
    yield cluster
    cluster.stop()


@pytest.fixture
def kernel(cluster: Cluster) -> Kernel:
    kernel = cluster.mount(0)
    for other in (1, 2):
        connected(kernel, cluster.nodes[0], cluster.name_at(other, "none"))
    kernel.asked()
    return kernel


def flush(kernel: Kernel, ino: int, handle: int, opcode: int = FLUSH) -> int:
    return kernel.send(opcode, ino, struct.pack("<QIIQ", handle, 0, 0, 0) if opcode == FLUSH else struct.pack("<QII", handle, 0, 0))


def write(kernel: Kernel, name: bytes, data: bytes) -> tuple[int, int]:
    error, ino, handle = kernel.create(name)
    assert error == 0
    assert not data or kernel.write(ino, handle, data) == 0
    return ino, handle


def attr_of(cluster: Cluster, ino: int) -> Attr:
    meta = cluster.nodes[0].meta
    owner = meta.owner(meta.ino_partition(ino))
    return Attr(*cluster.nodes[owner].meta.getattr(ino, owner))


def holders_of(cluster: Cluster, ino: int) -> tuple[int, ...]:
    meta = cluster.nodes[0].meta
    return tuple(sorted(cluster.nodes[meta.owner(meta.ino_partition(ino))].meta.holders(ino)))


def part(cluster: Cluster, node: int, ino: int) -> bytes:
    return next(cluster.nodes[node].root.rglob(f"{ino:016x}")).read_bytes()


# ── what a mount does ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, SMALL_MAX])
@pytest.mark.parametrize("owner", [0, 1, 2])
@pytest.mark.parametrize("opcode", [FLUSH, FSYNC])
def test_closing_takes_no_poll_loop(cluster: Cluster, kernel: Kernel, owner: int, size: int, opcode: int) -> None:
    data = os.urandom(size)
    ino, handle = write(kernel, cluster.name_at(owner), data)
    keeper = owner or 1  # the backup of the record where the record is here
    for _ in range(2):  # an fsync, and the closing of a descriptor
        assert kernel.wait(flush(kernel, ino, handle, opcode))[0] == 0
        attr = attr_of(cluster, ino)
        assert (attr.writer, attr.finished, attr.size) == (0, 0, size)
        assert holders_of(cluster, ino) == ((0, keeper) if size else (0,))
        assert not size or part(cluster, keeper, ino) == data
    kernel.release(ino, handle)
    until(lambda: attr_of(cluster, ino).finished == 1, "its shard has not heard that it is closed")
    assert holders_of(cluster, ino) == ((0, keeper) if size else (0,))
    until(lambda: cluster.nodes[0].meta.direct_uses(ino) == (0, 0, False), "something is left")
    assert not [op for op in kernel.asked() if op != "touched"]
    if size:
        here, there = (os.stat(next(cluster.nodes[node].root.rglob(f"{ino:016x}"))) for node in (0, keeper))
        assert (here.st_size, here.st_mtime_ns) == (there.st_size, there.st_mtime_ns)


def test_times_of_both_copies_are_set_at_once(cluster: Cluster, kernel: Kernel) -> None:
    """If one is on the node of the record, and nobody writes the file."""
    ino, handle = write(kernel, cluster.name_at(1), BYTES)
    assert kernel.wait(flush(kernel, ino, handle))[0] == 0
    kernel.release(ino, handle)
    until(lambda: attr_of(cluster, ino).finished == 1, "its shard has not heard that it is closed")
    assert kernel.utime(ino, 1000)[0] == 0
    parts = [os.stat(next(cluster.nodes[node].root.rglob(f"{ino:016x}"))) for node in (0, 1)]
    assert [(each.st_atime, each.st_mtime) for each in parts] == [(1000, 1000)] * 2
    assert (attr_of(cluster, ino).atime, attr_of(cluster, ino).mtime) == (1000 * 10**9, 1000 * 10**9)
    assert not [op for op in kernel.asked() if op != "touched"]


@pytest.mark.parametrize("lost", [False, True])
def test_times_of_a_copy_elsewhere_or_of_none_take_the_long_way(cluster: Cluster, kernel: Kernel, lost: bool) -> None:
    ino, handle = write(kernel, cluster.name_at(1), BYTES)
    assert kernel.wait(flush(kernel, ino, handle))[0] == 0
    kernel.release(ino, handle)
    until(lambda: attr_of(cluster, ino).finished == 1, "its shard has not heard that it is closed")
    if lost:
        cluster.nodes[1].io.part_delete(ino)
    else:
        cluster.nodes[1].meta.getattr(ino, 2)  # it is told of changes
        cluster.nodes[1].meta.add_holder(ino, 2, cluster.nodes[1].meta.grant(ino))
    before = attr_of(cluster, ino)
    unique = kernel.send(4, ino, struct.pack("<II6Q8I", 0x30, 0, 0, 0, 0, 1000, 1000, *([0] * 9)))
    assert "setattr" in kernel.until_asked()
    assert attr_of(cluster, ino) == before
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


@pytest.mark.parametrize("owner", [0, 1])
def test_what_is_written_afterwards_takes_the_long_way(cluster: Cluster, kernel: Kernel, owner: int) -> None:
    ino, handle = write(kernel, cluster.name_at(owner), BYTES)
    assert kernel.wait(flush(kernel, ino, handle))[0] == 0
    assert kernel.write(ino, handle, BYTES.swapcase()) == 0
    unique = flush(kernel, ino, handle)
    assert kernel.until_asked() == ["secure"]
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0
    kernel.release(ino, handle)
    assert "closed" in kernel.until_asked()
    assert part(cluster, 1, ino) == BYTES


@pytest.mark.parametrize("owner", [0, 1])
def test_what_a_mapping_writes_after_the_closing_is_told_the_long_way(cluster: Cluster, kernel: Kernel, owner: int) -> None:
    ino, handle = write(kernel, cluster.name_at(owner), BYTES)
    assert kernel.wait(flush(kernel, ino, handle))[0] == 0
    here = next(cluster.nodes[0].root.rglob(f"{ino:016x}"))
    found = here.stat()
    here.write_bytes(BYTES.swapcase())
    os.utime(here, ns=(found.st_atime_ns, found.st_mtime_ns))  # as a mapping may leave it
    kernel.release(ino, handle)
    assert "closed" in kernel.until_asked()


@pytest.mark.parametrize("owner", [0, 1])
def test_a_file_that_is_too_large_takes_the_long_way(cluster: Cluster, kernel: Kernel, owner: int) -> None:
    ino, handle = write(kernel, cluster.name_at(owner), b"x" * (SMALL_MAX + 1))
    unique = flush(kernel, ino, handle)
    assert kernel.until_asked() == ["secure"]
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0
    assert not cluster.nodes[1].parts()


@pytest.mark.parametrize("owner", [0, 1])
def test_a_file_that_the_poll_loop_uses_takes_the_long_way(cluster: Cluster, kernel: Kernel, owner: int) -> None:
    ino, handle = write(kernel, cluster.name_at(owner), BYTES)
    cluster.nodes[0].meta.claim(ino, True)
    unique = flush(kernel, ino, handle)
    assert kernel.until_asked() == ["secure"]
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0
    cluster.nodes[0].meta.claim(ino, False)


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("owner", [0, 1])
def test_what_was_closed_survives_the_writer_and_the_shard(cluster: Cluster, kernel: Kernel, owner: int, dead: int) -> None:
    """The handle is open still: its node dies, or the other one."""
    ino, handle = write(kernel, cluster.name_at(owner), BYTES)
    assert kernel.wait(flush(kernel, ino, handle))[0] == 0
    heir = owner if owner != dead else (owner + 1) % 3
    meta = cluster.nodes[heir].meta
    assert not meta.forget_node(dead)
    if owner == dead:
        meta.set_table([heir if meta.owner(p) == dead else meta.owner(p) for p in range(PARTITIONS)], cluster.version + 1)
        meta.promote(meta.ino_partition(ino))
    attr = Attr(*meta.getattr(ino, heir))
    left = {0, 1} - {dead}
    assert (attr.size, set(meta.holders(ino))) == (len(BYTES), left)
    assert attr.finished == (1 if dead == 0 else 0)
    assert part(cluster, left.pop(), ino) == BYTES


# ── what a shard, or the backup of one, answers ────────────────────────────────────────────────────


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    """Node 2 asks node 0, whose backup is node 1."""
    it = Line(cluster.nodes[0].io.port, 2, server=0)
    yield it
    it.close()


def made_here(cluster: Cluster) -> tuple[int, Attr]:
    """A file that node 2 writes, recorded at node 0."""
    attr = Attr(*cluster.nodes[0].meta.create(ROOT, cluster.name_at(0), 1, 2, None, tuple(record(writer=2, finished=0))))
    return attr.ino, attr._replace(size=len(BYTES), blocks=8, mtime=7, atime=6)


def test_the_shard_keeps_and_records_it_in_one_step(cluster: Cluster, line: Line) -> None:
    ino, said = made_here(cluster)
    for _ in range(2):
        assert line.ask(SECURE, ino, attr=said, value=BYTES).error == 0
        assert (holders_of(cluster, ino), attr_of(cluster, ino).size, part(cluster, 0, ino)) == ((0, 2), len(BYTES), BYTES)
    assert line.ask(SECURE, ino, attr=said._replace(mtime=8), value=BYTES).error == META_BUSY, "it has been written since"
    assert line.ask(SECURE, ino, attr=said, value=BYTES.swapcase()).error == META_BUSY, "it has been written since, by a mapping"
    assert part(cluster, 0, ino) == BYTES


def test_only_the_writer_of_a_new_file_that_wants_two_copies(cluster: Cluster, line: Line) -> None:
    meta = cluster.nodes[0].meta
    ino, said = made_here(cluster)
    assert line.ask(SECURE, ino, attr=said, value=BYTES[1:]).error == errno.EINVAL
    assert line.ask(SECURE, ino, value=BYTES).error == errno.EINVAL
    large = said._replace(size=SMALL_MAX + 1)
    assert line.ask(SECURE, ino, attr=large, value=b"x" * (SMALL_MAX + 1)).error == errno.EINVAL
    cluster.nodes[0].io.set_shy(True)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_BUSY
    cluster.nodes[0].io.set_shy(False)
    meta.closing(ino)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_BUSY
    meta.closed(ino)
    meta.set_moving([meta.ino_partition(ino)], True)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_NOT_MINE
    meta.set_moving([meta.ino_partition(ino)], False)
    assert not cluster.nodes[0].parts()
    meta.open(ino, 1, False)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_BUSY, "node 1 reads it, and may bring it"
    assert not cluster.nodes[0].parts()
    assert holders_of(cluster, ino) == ()


@pytest.mark.parametrize("copies", [1, 3])
def test_one_copy_needs_nothing_and_three_take_the_long_way(cluster: Cluster, line: Line, copies: int) -> None:
    want_copies(cluster, copies)
    ino, said = made_here(cluster)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == (0 if copies == 1 else META_BUSY)
    assert (holders_of(cluster, ino), cluster.nodes[0].parts()) == ((), 0)


def test_a_file_that_is_copied_by_the_poll_loops(cluster: Cluster, line: Line) -> None:
    ino, said = made_here(cluster)
    assert cluster.nodes[0].meta.begin_copies(ino)
    assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_BUSY
    assert not cluster.nodes[0].parts()


def test_what_lies_there_is_not_written_over(cluster: Cluster, line: Line) -> None:
    ino, said = made_here(cluster)
    for _ in range(2):
        assert line.ask(SECURE, ino, attr=said, value=BYTES, flags=HOLDS).error == 0
    assert line.ask(SECURE, ino, attr=said, value=BYTES.swapcase(), flags=HOLDS).error == META_BUSY
    assert line.ask(SECURE, ino, attr=said, value=BYTES.swapcase()).error == META_BUSY
    assert (part(cluster, 0, ino), holders_of(cluster, ino)) == (BYTES, ()), "the asker records it"


def test_no_room(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, limit=1)
    line = Line(cluster.nodes[0].io.port, 2, server=0)
    try:
        want_copies(cluster)
        ino, said = made_here(cluster)
        assert line.ask(SECURE, ino, attr=said, value=BYTES).error == META_BUSY
        assert (holders_of(cluster, ino), cluster.nodes[0].parts()) == ((), 0)
    finally:
        line.close()
        cluster.stop()


# ── the node that is to keep it ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", [None, META_BUSY, 0])
def test_the_keeper_dies_or_refuses(tmp_path: Path, answer: int | None) -> None:
    """Nobody takes the content twice at a time, and nothing that it has taken may be given up, until it has answered."""
    asked, go_on = threading.Event(), threading.Event()

    def hear(line: socket.socket) -> bool:
        size, serial, op, *_ = QUESTION.unpack(exactly(line, QUESTION.size))
        exactly(line, size - QUESTION.size)
        if op == SECURE:
            asked.set()
            go_on.wait(GUARD_S)
        if op == SECURE and answer is None:
            line.shutdown(socket.SHUT_RDWR)
            return False
        line.sendall(ANSWER.pack(ANSWER.size, serial, answer or 0 if op == SECURE else errno.ENOENT, 0))
        return True

    def act(line: socket.socket) -> None:
        with suppress(EOFError):  # the end
            while hear(line):
                pass

    with lied_to(tmp_path, act, 5000) as cluster:
        meta = cluster.nodes[0].meta
        meta.dir_set_copies(ROOT, 2)
        kernel = cluster.mount(0)
        connected(kernel, cluster.nodes[0], cluster.name_at(1, "none"))
        kernel.asked()
        ino, handle = write(kernel, cluster.name_at(0), BYTES)
        meta.set_backups([1 if meta.owner(p) == 0 else -1 for p in range(PARTITIONS)], [1])
        unique = flush(kernel, ino, handle)
        assert asked.wait(GUARD_S)
        assert not meta.begin_copies(ino)
        with pytest.raises(OSError) as refused:
            meta.give_up(ino, 1)
        assert refused.value.errno == errno.EBUSY
        if answer == 0:
            meta.set_backups([-1] * PARTITIONS, [])  # it has died: that it had the content is not to be recorded
        go_on.set()
        assert kernel.until_asked() == ["secure"]
        assert (holders_of(cluster, ino), meta.begin_copies(ino)) == ((), True)
        kernel.fuse.reply_error(unique, 0)
        assert kernel.wait(unique)[0] == 0
