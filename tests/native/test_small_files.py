"""Small files of other nodes: a mount brings them without any poll loop (fsmeta_small.c), and never what is old."""

from __future__ import annotations

import errno
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer_meta_nodes import (
    CONTENT,
    GETATTR,
    HOLD,
    META_BUSY,
    META_NOT_MINE,
    SMALL,
    SMALL_MAX,
    Cluster,
    Kernel,
    Line,
    Node,
    connected,
    record,
)
from waiting import until

from amfs.vocabulary.attr import META_SET_MODE, Attr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, 3)
    yield cluster
    cluster.stop()


def write(kernel: Kernel, owner: Node, name: bytes, data: bytes) -> int:
    error, ino, handle = kernel.create(name)
    assert error == 0
    assert kernel.write(ino, handle, data) == 0
    kernel.release(ino, handle)
    until(lambda: owner.meta.getattr(ino, owner.number)[8] == 1, "its shard has not heard that it is closed")
    return ino


def open_to_read(kernel: Kernel, ino: int) -> int:
    error, data = kernel.call(14, ino, struct.pack("<II", os.O_RDONLY, 0))
    assert error == 0
    handle: int = struct.unpack_from("<Q", data)[0]
    return handle


def read(kernel: Kernel, ino: int) -> bytes:
    handle = open_to_read(kernel, ino)
    error, data = kernel.call(15, ino, struct.pack("<QQIIQII", handle, 0, 1 << 16, 0, 0, 0, 0))
    assert error == 0
    kernel.release(ino, handle)
    return data


def connect_all(cluster: Cluster, kernel: Kernel, number: int) -> None:
    for other in range(3):
        if other != number:
            connected(kernel, cluster.nodes[number], cluster.name_at(other, "none"))
    kernel.asked()


@pytest.mark.parametrize("owner", [0, 1, 2])
def test_wherever_the_record_lies(cluster: Cluster, owner: int) -> None:
    """Written on node 0, read on node 1; the record is with the writer, the reader, or neither."""
    writer, reader, name = cluster.mount(0), cluster.mount(1), cluster.name_at(owner)
    connect_all(cluster, writer, 0)
    connect_all(cluster, reader, 1)
    shard = cluster.nodes[owner]
    ino = write(writer, shard, name, b"hello" * 100)
    assert reader.lookup(name)[0] == 0
    for _ in range(2):
        assert read(reader, ino) == b"hello" * 100
    until(lambda: shard.meta.holders(ino) == (0, 1), "it is not recorded that the reader has it")
    assert cluster.nodes[1].parts() == 1
    until(lambda: cluster.nodes[1].meta.direct_uses(ino) == (0, 0, False), "something is left")
    assert not [op for kernel in (writer, reader) for op in kernel.asked() if op not in ("touched", "closed")]
    found, there = (os.stat(next(node.root.rglob(f"{ino:016x}"))) for node in cluster.nodes[:2])
    assert (found.st_size, found.st_mtime_ns) == (there.st_size, there.st_mtime_ns)


def test_the_largest_and_one_that_is_larger(cluster: Cluster) -> None:
    writer, reader = cluster.mount(0), cluster.mount(1)
    connect_all(cluster, writer, 0)
    connect_all(cluster, reader, 1)
    for size in (SMALL_MAX, SMALL_MAX + 1):
        name = cluster.name_at(2, f"f{size}-")
        ino = write(writer, cluster.nodes[2], name, b"x" * size)
        assert reader.lookup(name)[0] == 0
        if size <= SMALL_MAX:
            assert read(reader, ino) == b"x" * size
            continue
        unique = reader.send(14, ino, struct.pack("<II", os.O_RDONLY, 0))
        assert "open" in reader.until_asked()
        reader.fuse.reply_error(unique, errno.EIO)
        assert reader.wait(unique)[0] == errno.EIO


def test_a_change_after_the_look_is_seen(cluster: Cluster) -> None:
    """The reader's node is told before the change is answered; then what it was going to bring is forgotten."""
    writer, reader, name = cluster.mount(0), cluster.mount(1), cluster.name_at(2)
    connect_all(cluster, writer, 0)
    connect_all(cluster, reader, 1)
    ino = write(writer, cluster.nodes[2], name, b"old")
    assert reader.lookup(name)[0] == 0
    forget(cluster.nodes[1], ino)
    asked = cluster.nodes[1].io.questions[0]
    assert read(reader, ino) == b"old"
    assert cluster.nodes[1].io.questions[0] - asked >= 3, "its shard was not asked again"


def forget(node: Node, ino: int) -> None:
    with pytest.raises(OSError, match="No such file"):
        node.meta.uncache(ino)


def test_what_has_changed_while_it_was_brought_does_not_stay(cluster: Cluster) -> None:
    """The shard has forgotten that the reader looks, as it does when it tells it of a change; the news is still on its way."""
    writer, reader, name = cluster.mount(0), cluster.mount(1), cluster.name_at(2)
    connect_all(cluster, writer, 0)
    connect_all(cluster, reader, 1)
    shard = cluster.nodes[2].meta
    ino = write(writer, cluster.nodes[2], name, b"old")
    assert reader.lookup(name)[0] == 0
    assert 1 in shard.setattr(ino, META_SET_MODE, tuple(Attr(mode=0o600)), 1, 2)[1]
    unique = reader.send(14, ino, struct.pack("<II", os.O_RDONLY, 0))
    ready, _, _ = select.select([reader.socket.fileno(), reader.fuse.fd], [], [], 60)
    if reader.socket.fileno() in ready:
        error, data = reader.wait(unique)
        assert error == 0
        reader.release(ino, struct.unpack_from("<Q", data)[0])
    else:  # the shard was faster than the mount: the poll loop is to find out
        assert reader.until_asked()[-1] == "open"
        reader.fuse.reply_error(unique, errno.EIO)
        assert reader.wait(unique)[0] == errno.EIO
    until(lambda: cluster.nodes[1].parts() == 0, "it stays although it is not known")
    assert shard.holders(ino) == (0,)
    forget(cluster.nodes[1], ino)


def test_what_peers_are_told(cluster: Cluster) -> None:
    writer, name = cluster.mount(0), cluster.name_at(2)
    connect_all(cluster, writer, 0)
    ino = write(writer, cluster.nodes[2], name, b"four")
    attr = Attr(*cluster.nodes[2].meta.getattr(ino, 2))
    holder, shard = Line(cluster.nodes[0].io.port, 1), Line(cluster.nodes[2].io.port, 1, server=2)
    assert holder.ask(CONTENT, ino, attr=attr).rest == b"four"
    assert holder.ask(CONTENT, ino, attr=attr._replace(size=5)).error == META_BUSY
    assert holder.ask(CONTENT, ino + 1, attr=attr).error == META_BUSY
    assert holder.ask(CONTENT, ino, attr=attr._replace(size=SMALL_MAX + 1)).error == errno.EINVAL
    assert holder.ask(CONTENT, ino).error == errno.EINVAL
    assert holder.ask(HOLD, ino, attr=attr).error == META_NOT_MINE
    assert shard.ask(HOLD, ino, attr=attr).error == errno.EAGAIN, "nobody tells it of changes"
    answer = shard.ask(GETATTR, ino)
    assert answer.flags & SMALL
    assert answer.rest == struct.pack("<i", 0)
    assert shard.ask(HOLD, ino, attr=attr._replace(mtime=attr.mtime + 1)).error == errno.EAGAIN
    assert shard.ask(HOLD, ino, attr=record(size=5)).error == errno.EAGAIN
    assert shard.ask(HOLD, ino, attr=attr).error == 0
    assert cluster.nodes[2].meta.holders(ino) == (0, 1)
    assert not shard.ask(GETATTR, ino).flags & SMALL
    for line in (holder, shard):
        line.close()


def test_damaged_content_does_not_go_the_short_way_and_a_copy_is_known_by_its_digest(cluster: Cluster) -> None:
    writer, reader, name = cluster.mount(0), cluster.mount(1), cluster.name_at(2)
    connect_all(cluster, writer, 0)
    connect_all(cluster, reader, 1)
    ino = write(writer, cluster.nodes[2], name, b"hello" * 100)
    until(lambda: cluster.nodes[0].io.check_part(ino)[0] == 1, "its digest was never taken")
    assert reader.lookup(name)[0] == 0
    assert read(reader, ino) == b"hello" * 100
    assert cluster.nodes[1].io.check_part(ino)[0] == 1, "the copy has the digest of what it was made of from the start"
    attr = Attr(*cluster.nodes[2].meta.getattr(ino, 2))
    for number in (0, 1):
        io, line = cluster.nodes[number].io, Line(cluster.nodes[number].io.port, 2, server=number)
        assert line.ask(CONTENT, ino, attr=attr).rest == b"hello" * 100
        path = cluster.nodes[number].root / io.part_path(ino, -1)
        times = path.stat()
        path.write_bytes(b"hellO" + b"hello" * 99)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert line.ask(CONTENT, ino, attr=attr).error == META_BUSY
        assert io.check_part(ino)[0] == 2
        line.close()
